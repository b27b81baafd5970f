package io.weir.spring

import java.net.InetAddress
import java.net.ServerSocket
import java.nio.file.Files
import java.nio.file.Path
import java.util.concurrent.TimeUnit
import kotlin.io.path.ExperimentalPathApi
import kotlin.io.path.deleteRecursively
import kotlin.io.path.listDirectoryEntries
import kotlin.io.path.readLines
import kotlin.io.path.readText
import kotlin.io.path.writeText

/** A real `weir serve` on a free port of loopback, in a folder of its own; gone when it is closed, or when this JVM ends. */
class Weir(vararg flags: String, rules: String = RULES) : AutoCloseable {
    private val folder: Path = Files.createTempDirectory("weir-spring")
    private val flags = flags.toList()
    private val hook = Thread(::end)
    private lateinit var process: Process
    val port = freePort()
    val url get() = "redis://127.0.0.1:$port"

    init {
        Runtime.getRuntime().addShutdownHook(hook)
        folder.resolve("rules.yaml").writeText(rules)
        start()
    }

    /** On the port that it had before. */
    fun start() {
        val log = folder.resolve("log").toFile()
        log.delete()
        val binary = Path.of(System.getProperty("weir.binary")).let { if (it.nameCount > 1) it.toAbsolutePath() else it }
        val words = listOf(
            "$binary", "serve", "--data", "$folder/data", "--rules", "$folder/rules.yaml", "--http", "off", "--admin", "off",
            "--resp", "127.0.0.1:$port", "--threads", "1", "--log", "json", "--cells-memory", "none",
        )
        process = ProcessBuilder(words + flags).redirectErrorStream(true).redirectOutput(log).start()
        until("weir listens") {
            check(process.isAlive) { "weir ended: ${log.readText()}" }
            log.toPath().readLines().firstOrNull { "resp on 127.0.0.1:$port" in it }
        }
    }

    fun kill() {
        process.destroyForcibly().waitFor()
    }

    /** When it returns, no thread of weir runs any more: a signal is sent before it has its effect. */
    fun stop() {
        signal("STOP")
        val threads = Path.of("/proc/${process.pid()}/task")
        until("weir stands still") { threads.listDirectoryEntries().all(::isStopped).takeIf { it } }
    }

    fun goOn() = signal("CONT")

    /** How many clients it has, as the system knows them. */
    fun connections(): Int {
        val end = ":%04X".format(port)
        val sockets = Path.of("/proc/net/tcp").readLines().map { it.trim().split(' ') }
        return sockets.count { it[1].endsWith(end) && it[3] == ESTABLISHED }
    }

    private fun signal(name: String) {
        check(ProcessBuilder("kill", "-$name", "${process.pid()}").start().waitFor() == 0)
    }

    private fun isStopped(thread: Path) = thread.resolve("stat").readText().substringAfterLast(") ").startsWith("T")

    @OptIn(ExperimentalPathApi::class)
    private fun end() {
        kill()
        folder.deleteRecursively()
    }

    override fun close() {
        Runtime.getRuntime().removeShutdownHook(hook)
        end()
    }

    companion object {
        private const val ESTABLISHED = "01"

        /** For all tests that only ask. */
        val shared by lazy { Weir() }

        private val RULES = """
            rules:
              - { id: ocr, match: { event: ocr }, by: [key], limits: [ { name: hour, algorithm: fixed_window, max: 3, per: 1h } ] }
              - id: llm
                match: { event: llm }
                by: [key]
                limits: [ { name: calls, algorithm: fixed_window, max: 100, per: 1h }, { name: tokens, unit: tokens, algorithm: fixed_window, max: 5000000000, per: 1h } ]
              - { id: one, match: { event: one }, by: [key], limits: [ { name: day, algorithm: fixed_window, max: 1, per: 24h } ] }
              - id: teapot
                match: { event: teapot }
                by: [key]
                limits: [ { name: never, algorithm: fixed_window, max: 0, per: 1h } ]
                reject: { status: 418 }
        """.trimIndent()
    }
}

/** One that no connection gets while weir is away: those are from 32768 on. */
private fun freePort(): Int = generateSequence { (20000..32767).random() }.first { port ->
    runCatching { ServerSocket(port, 1, InetAddress.getLoopbackAddress()).close() }.isSuccess
}

/** Waits for something that is to come. */
fun <T : Any> until(what: String, get: () -> T?): T {
    val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30)
    while (true) {
        get()?.let { return it }
        check(System.nanoTime() < end) { "$what: not within 30 s" }
        Thread.sleep(5)
    }
}
