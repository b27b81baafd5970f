package io.weir.spring

import io.micrometer.core.instrument.MeterRegistry
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.beans.factory.annotation.Autowired
import reactor.core.scheduler.Schedulers
import java.io.ByteArrayOutputStream
import java.io.ObjectOutputStream
import java.time.Duration
import java.util.concurrent.CountDownLatch

class DetectManagerTest(@Autowired private val manager: DetectManager, @Autowired private val meters: MeterRegistry) : InApp() {
    @Test
    fun `match and matchExceptionally`() {
        val user = someone()
        val verdict = manager.match("ocr", user, cost = 2)
        assertEquals(listOf(true, "ocr", "hour", 3L, 1L, 0), verdict.run { listOf(allowed, rule, limit, max, remaining, status) })
        assertEquals("requests", verdict.unit)
        assertNull(verdict.retryAfter)
        manager.matchExceptionally("ocr", user)
        assertFalse(manager.match("ocr", user).allowed)
        assertEquals(429, refused { manager.matchExceptionally("ocr", user) }.verdict.status)
    }

    @Test
    fun `costs in other units`() {
        val user = someone()
        val costs = mapOf("tokens" to 4999999999L)
        assertTrue(manager.match("llm", user, costs = costs).allowed)
        val refused = manager.match("llm", user, costs = mapOf("tokens" to 2L))
        assertFalse(refused.allowed)
        assertEquals(listOf("tokens", 5000000000L, 1L, "tokens"), refused.run { listOf(limit, max, remaining, unit) })
        assertTrue(manager.match("llm", user, cost = 99).allowed)
        assertFalse(manager.match("llm", user).allowed)
        assertTrue(manager.match("llm", user, cost = 0, costs = mapOf("tokens" to 1L)).allowed)
        for (wrong in listOf(mapOf("requests" to 1L), mapOf("a b" to 1L), mapOf("tokens" to -1L)))
            assertThrows<IllegalArgumentException> { manager.match("llm", user, costs = wrong) }
    }

    @Test
    fun `Mono and suspend forms`() = runBlocking<Unit> {
        val user = someone()
        assertEquals(2, manager.matchMono("ocr", user).block()!!.remaining)
        assertEquals(1, manager.matchExceptionallyMono("ocr", user).block()!!.remaining)
        assertEquals(0, manager.matchSuspending("ocr", user).remaining)
        assertThrows<OperationTooFrequentException> { manager.matchExceptionallySuspending("ocr", user) }
        refused { manager.matchExceptionallyMono("ocr", user).block() }
        assertFalse(manager.matchMono("ocr", user).block()!!.allowed)
    }

    @Test
    fun `refund gives back once`() = runBlocking<Unit> {
        val user = someone()
        val first = manager.match("ocr", user, cost = 3, refundable = true)
        assertEquals(listOf(1, 0), listOf(manager.refund(first), manager.refund(first)))
        val second = manager.match("ocr", user, refundable = true)
        assertEquals(2, second.remaining)
        assertEquals(1, manager.refundSuspending(second))
        assertEquals(0, manager.refundMono(manager.match("ocr", user)).block())
    }

    @Test
    fun `what no rule knows passes`() {
        val verdict = manager.match("unknown", "x")
        assertTrue(verdict.allowed)
        assertNull(verdict.rule)
        assertNull(verdict.unit)
        assertTrue(verdict.headers().isEmpty())
    }

    @Test
    fun `a blank event or key is an error`() {
        for ((event, key) in listOf("" to "x", " " to "x", "ocr" to "", "ocr" to null)) {
            assertThrows<IllegalArgumentException> { manager.match(event, key) }
            assertThrows<IllegalArgumentException> { manager.matchMono(event, key).block() }
        }
    }

    @Test
    fun `keys may be any text`() {
        for (key in listOf("ключ 🔑", "a\r\nb", "x".repeat(5000) + someone())) {
            manager.match("one", key + someone()).let { assertEquals("one", it.rule) }
        }
    }

    @Test
    fun `no key or event is so long that weir hangs up on everybody`() {
        val (a, b) = List(2) { "x".repeat(2_000_000) + someone() }
        val first = manager.match("one", a, refundable = true)
        assertEquals("one", first.rule)
        assertFalse(manager.match("one", a).allowed)
        assertTrue(manager.match("one", b).allowed)
        assertEquals(1, manager.refund(first))
        assertFalse(manager.match(a, "x").unreachable)
    }

    @Test
    fun `the Mono and suspend forms do not wait for Reactor's threads`() {
        val end = CountDownLatch(1)
        try {
            repeat(Schedulers.DEFAULT_BOUNDED_ELASTIC_SIZE) { Schedulers.boundedElastic().schedule(end::await) }
            assertTrue(manager.matchMono("ocr", someone()).block(Duration.ofSeconds(10))!!.allowed)
        } finally {
            end.countDown()
        }
    }

    @Test
    fun `a refusal can be serialised, and one made by hand is a 429`() {
        val refusal = OperationTooFrequentException(Verdict("ocr", "x", allowed = false))
        ObjectOutputStream(ByteArrayOutputStream()).writeObject(refusal)
        assertEquals(429, TooFrequentAdvice().answer(refusal).statusCode.value())
    }

    @Test
    fun `a thread that is interrupted does not wait, and stays interrupted`() {
        Thread.currentThread().interrupt()
        manager.match("ocr", someone())
        assertTrue(Thread.interrupted())
    }

    @Test
    fun `Micrometer counts by event and outcome`() {
        val user = someone()
        fun count(outcome: String) = meters.counter("weir.decisions", "event", "one", "outcome", outcome).count()
        val before = count("allowed") to count("refused")
        repeat(3) { manager.match("one", user) }
        assertEquals(before.first + 1 to before.second + 2, count("allowed") to count("refused"))
    }
}
