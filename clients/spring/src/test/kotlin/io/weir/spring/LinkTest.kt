package io.weir.spring

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.junit.jupiter.api.extension.ExtendWith
import org.springframework.boot.test.system.CapturedOutput
import org.springframework.boot.test.system.OutputCaptureExtension
import org.springframework.test.util.ReflectionTestUtils.getField
import java.net.InetAddress
import java.net.ServerSocket
import java.net.Socket
import java.time.Duration
import java.util.concurrent.CompletableFuture

@ExtendWith(OutputCaptureExtension::class)
class LinkTest {
    private fun question() = check(Question("ocr", "link", 0, receipt = false))

    @Test
    fun `nothing waits for a connection that is being made`() {
        ServerSocket(0, 1, InetAddress.getLoopbackAddress()).use { silent ->
            Link("redis://127.0.0.1:${silent.localPort}", "let through").use { link ->
                val opening = CompletableFuture.runAsync(link::open)
                silent.accept().use {
                    assertTrue(link.send(question()).isCompletedExceptionally)
                    opening.join()
                }
            }
        }
    }

    @Test
    fun `lost connections are not kept`() {
        Weir().use { weir ->
            Link(weir.url, "let through").use { link ->
                link.open()
                repeat(2) {
                    weir.kill()
                    weir.start()
                    until<Any>("weir answers") { runCatching { link.send(question()).get() }.getOrNull() }
                }
                assertEquals(1, (getField(getField(link, "client")!!, "closeableResources") as Collection<*>).size)
            }
        }
    }

    @Test
    fun `a weir that vanishes without a word is noticed though nobody calls, and found again`(output: CapturedOutput) {
        Weir().use { weir ->
            Link(weir.url, "let through", keepAlive = Duration.ofMillis(100)).use { link ->
                link.open()
                link.send(question()).get()
                weir.stop()
                try {
                    until("it is noticed") { output.all.takeIf { "${weir.port} is out of reach" in it } }
                    assertTrue("it does not answer" in output.all, output.all)
                    assertTrue(link.send(question()).isCompletedExceptionally)
                } finally {
                    weir.goOn()
                }
                until<Any>("weir answers") { runCatching { link.send(question()).get() }.getOrNull() }
            }
        }
    }

    @Test
    fun `the log says in a few words what is wrong`(output: CapturedOutput) {
        ServerSocket(0, 50, InetAddress.getLoopbackAddress()).use { peer ->
            for ((answer, expected) in listOf(
                "HTTP/1.1 400 Bad Request\r\n\r\n" to "it does not speak as weir does. Is it weir's port for Redis clients (6380)?",
                "+OK\r\n" to "it does not speak as weir does",
                "-ERR unknown command\r\n" to "Is it a weir",
                "" to "it hangs up. Is it weir's port",
            )) Link("redis://127.0.0.1:${peer.localPort}", "let through").use { link ->
                val opening = CompletableFuture.runAsync(link::open)
                peer.accept().use { if (answer.isNotEmpty()) reply(it, answer) }
                opening.join()
                assertTrue(expected in output.all.substringAfterLast("out of reach"), output.all)
            }
        }
        Link("redis://127.0.0.1:1", "refused").use { it.open() }
        val expected = "127.0.0.1:1 is out of reach, and calls are refused until it answers: nothing listens there"
        assertTrue(expected in output.all, output.all)
    }

    /** The same to each command, until the other end has enough. */
    private fun reply(to: Socket, answer: String) {
        val read = ByteArray(4096)
        while (true) {
            val count = to.getInputStream().read(read)
            if (count < 0) return
            val commands = String(read, 0, count).count { it == '*' }
            to.getOutputStream().write(answer.repeat(commands).toByteArray())
        }
    }

    @Test
    fun `an address that is none is told without its token`() {
        val bad = listOf("sec ret@h:1", "sec^ret@h:1", "sec%e-ret@h:1", "sec/ret@h:1", "sec/ret@h", "@", "secret@:1")
        for (url in bad.map { "redis://:$it" } + "secret:6380" + "http://secret" + "") {
            val mistake = assertThrows<Mistake>(url) { address(url) }
            assertFalse("sec" in "$mistake ${mistake.cause}", "$mistake")
        }
    }

    @Test
    fun `the port is weir's unless another is said`() {
        val ports = listOf("h" to 6380, ":secret@h" to 6380, "h:6379" to 6379, "h:7000" to 7000, "weir_1:7000" to 7000)
        for ((url, port) in ports) assertEquals(port, address("redis://$url").port, url)
    }
}
