package io.weir.spring

import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import org.springframework.boot.WebApplicationType
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.autoconfigure.ssl.SslAutoConfiguration
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.boot.test.system.CapturedOutput
import org.springframework.boot.test.system.OutputCaptureExtension
import java.io.File
import java.security.KeyStore
import java.security.cert.CertificateFactory

@ExtendWith(OutputCaptureExtension::class)
class TlsTest {
    private val runner = ApplicationContextRunner()
        .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java, SslAutoConfiguration::class.java))
        .withPropertyValues("weir.deadline=10s")

    /** The rule of a decision that weir has made. */
    private fun decide(vararg settings: String) = runner.withPropertyValues(*settings).run { context ->
        val manager = context.getBean(DetectManager::class.java)
        val verdict = until("weir answers") { manager.match("ocr", InApp.someone()).takeIf { !it.unreachable } }
        assertEquals("ocr", verdict.rule)
    }

    /** The log says why, and nobody gets a decision. A connection that is cut may hide the reason once; it is made anew. */
    private fun fails(output: CapturedOutput, reason: String, vararg settings: String) {
        val before = output.all.length
        runner.withPropertyValues(*settings).run { context ->
            until(reason) { output.all.drop(before).takeIf { "until it answers: $reason" in it } }
            assertTrue(context.getBean(DetectManager::class.java).match("ocr", "x").unreachable)
        }
    }

    @Test
    fun `decisions over TLS, with a token that may be in a file`() {
        val token = File(ca.at("credentials/weir-token")).apply { parentFile.mkdir(); writeText("a-token-of-weir-serve\n") }
        Weir(*ca.flags(), "--token-file", "$token").use { weir ->
            for (host in listOf("localhost", "127.0.0.1"))
                decide("weir.url=rediss://:a-token-of-weir-serve@$host:${weir.port}", "weir.ssl.ca-certs=${ca.file}")
            val settings = listOf(
                "spring.config.import=configtree:${token.parent}/", "weir.url=rediss://:\${weir-token}@localhost:${weir.port}",
                "weir.ssl.ca-certs=${ca.file}", "weir.deadline=10s",
            )
            val app = SpringApplicationBuilder(App::class.java).web(WebApplicationType.NONE)
            app.run(*settings.map { "--$it" }.toTypedArray()).use { context ->
                assertFalse(context.getBean(DetectManager::class.java).match("ocr", InApp.someone()).unreachable)
            }
        }
    }

    @Test
    fun `a client certificate, if weir asks for one`(output: CapturedOutput) {
        ca.issue("client")
        other.issue("client")
        Weir(*ca.flags(), "--client-authorities", ca.file, "--resp-tls", "clients").use { weir ->
            val settings = arrayOf("weir.url=rediss://localhost:${weir.port}", "weir.ssl.ca-certs=${ca.file}")
            fun client(of: Authority) = arrayOf("weir.ssl.certfile=${of.at("client.pem")}", "weir.ssl.keyfile=${of.at("client.key")}")
            decide(*settings, *client(ca))
            val both = File(ca.at("both.pem")).apply { writeText(File(ca.at("client.pem")).readText() + File(ca.at("client.key")).readText()) }
            decide(*settings, "weir.ssl.certfile=$both")
            fails(output, "it wants a client certificate: set weir.ssl.certfile", *settings)
            fails(output, "it does not accept the client certificate", *settings, *client(other))
        }
    }

    @Test
    fun `bundles of Spring Boot, from PEM files and from a trust store`() {
        ca.issue("client")
        val certificate = File(ca.file).inputStream().use { CertificateFactory.getInstance("X.509").generateCertificate(it) }
        val store = KeyStore.getInstance("PKCS12").apply { load(null, null); setCertificateEntry("ca", certificate) }
        File(ca.at("trust.p12")).outputStream().use { store.store(it, "password".toCharArray()) }
        Weir(*ca.flags(), "--client-authorities", ca.file, "--resp-tls", "clients").use { weir ->
            val pem = "spring.ssl.bundle.pem.weir"
            decide(
                "weir.url=rediss://localhost:${weir.port}", "weir.ssl.bundle=weir", "$pem.truststore.certificate=file:${ca.file}",
                "$pem.keystore.certificate=file:${ca.at("client.pem")}", "$pem.keystore.private-key=file:${ca.at("client.key")}",
            )
        }
        Weir(*ca.flags()).use { weir ->
            val jks = "spring.ssl.bundle.jks.weir.truststore"
            decide(
                "weir.url=rediss://localhost:${weir.port}", "weir.ssl.bundle=weir", "$jks.location=file:${ca.at("trust.p12")}",
                "$jks.password=password", "$jks.type=PKCS12",
            )
        }
    }

    @Test
    fun `who has the wrong certificate decides nothing`(output: CapturedOutput) {
        fun settings(weir: Weir) = arrayOf("weir.url=rediss://:a-token-of-weir@localhost:${weir.port}", "weir.ssl.ca-certs=${ca.file}")
        for ((flags, expected) in listOf(
            { ca.flags(names = "DNS:elsewhere.test") } to "its certificate is for another name: weir.url needs a host",
            { ca.flags(names = "IP:127.0.0.2") } to "its certificate is for another name",
            { other.flags() } to "its certificate is not trusted: weir.ssl.ca-certs has to name",
            { ca.flags(days = -1) } to "its certificate is not valid now: it has expired",
        )) Weir(*flags()).use { weir -> fails(output, expected, *settings(weir)) }
        Weir(*ca.flags()).use { weir ->
            for (more in listOf("", "?verifyPeer=NONE"))
                fails(output, "its certificate is not trusted", "weir.url=rediss://localhost:${weir.port}$more")
        }
        assertFalse("a-token-of" in output.all)
    }

    @Test
    fun `a port with TLS and one without`(output: CapturedOutput) {
        fails(output, "it has no TLS on this port: write weir.url as redis://", "weir.url=rediss://localhost:${Weir.shared.port}")
        Weir(*ca.flags()).use { weir -> fails(output, "it hangs up. $PORT_HINT", "weir.url=redis://localhost:${weir.port}") }
        assertTrue("With TLS write rediss://" in PORT_HINT)
    }

    @Test
    fun `replaced files count from the next connection on`() {
        val trusted = File(other.file).copyTo(File(ca.at("trusted.pem")), overwrite = true)
        Weir(*ca.flags()).use { weir ->
            runner.withPropertyValues("weir.url=rediss://localhost:${weir.port}", "weir.ssl.ca-certs=$trusted").run { context ->
                val manager = context.getBean(DetectManager::class.java)
                assertTrue(manager.match("ocr", "x").unreachable)
                File(ca.file).copyTo(trusted, overwrite = true)
                until<Verdict>("weir answers") { manager.match("ocr", "x").takeIf { !it.unreachable } }
            }
        }
    }

    @Test
    fun `settings that cannot work end the start`() {
        val url = "weir.url=rediss://localhost:1"
        val garbage = File(ca.at("garbage")).apply { writeText("nothing") }
        for ((settings, expected) in listOf(
            listOf("weir.url=redis://localhost:1", "weir.ssl.ca-certs=${ca.file}") to "weir.url has no TLS",
            listOf(url, "weir.ssl.ca-certs=${ca.at("none")}") to ca.at("none"),
            listOf(url, "weir.ssl.ca-certs=$garbage") to "$garbage",
            listOf(url, "weir.ssl.certfile=${ca.file}") to ca.file,
            listOf(url, "weir.ssl.keyfile=${ca.file}") to "weir.ssl.certfile is not",
            listOf(url, "weir.ssl.bundle=none") to "'none'",
            listOf(url, "weir.ssl.bundle=none", "weir.ssl.ca-certs=${ca.file}") to "Set the bundle alone",
        )) runner.withPropertyValues(*settings.toTypedArray()).run { context ->
            val mistake = generateSequence(context.startupFailure) { it.cause }.filterIsInstance<Mistake>().firstOrNull()
            assertTrue(expected in mistake?.message.orEmpty(), "$settings: ${context.startupFailure}")
        }
    }

    private companion object {
        val ca = Authority()
        val other = Authority()

        @AfterAll
        @JvmStatic
        fun end() = listOf(ca, other).forEach(Authority::close)
    }
}
