package io.weir.spring

import java.nio.file.Files
import java.nio.file.Path
import kotlin.io.path.ExperimentalPathApi
import kotlin.io.path.deleteRecursively
import kotlin.io.path.writeText

/** Makes certificates with the command openssl, in a folder of its own. */
class Authority : AutoCloseable {
    private val folder: Path = Files.createTempDirectory("weir-spring-tls")
    val file = at("ca.pem")

    init {
        openssl("req", "-x509", "-newkey", "ec", *CURVE, "-nodes", "-keyout", at("ca.key"), "-out", file, "-days", "10", "-subj", "/CN=test")
    }

    fun at(name: String) = "$folder/$name"

    /** The flags for a weir that has it. days: negative if it has expired. */
    fun flags(names: String = "DNS:localhost,IP:127.0.0.1", days: Int = 5): Array<String> {
        issue("server", names, days)
        return arrayOf("--certificate", at("server.pem"), "--certificate-key", at("server.key"))
    }

    /** A certificate NAME.pem, and its key NAME.key. */
    fun issue(name: String, names: String = "DNS:$name", days: Int = 5) {
        val (request, extensions) = listOf(at("$name.csr"), at("$name.ext"))
        Path.of(extensions).writeText("subjectAltName=$names\n")
        openssl("req", "-newkey", "ec", *CURVE, "-nodes", "-keyout", at("$name.key"), "-out", request, "-subj", "/CN=$name")
        openssl(
            "x509", "-req", "-in", request, "-CA", file, "-CAkey", at("ca.key"), "-CAcreateserial", "-days", "$days",
            "-extfile", extensions, "-out", at("$name.pem"),
        )
    }

    private fun openssl(vararg words: String) {
        val process = ProcessBuilder("openssl", *words).redirectErrorStream(true).start()
        val said = process.inputStream.reader().readText()
        check(process.waitFor() == 0) { said }
    }

    @OptIn(ExperimentalPathApi::class)
    override fun close() = folder.deleteRecursively()

    private companion object {
        val CURVE = arrayOf("-pkeyopt", "ec_paramgen_curve:P-256")
    }
}
