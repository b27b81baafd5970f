package io.weir.spring

import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertNotNull
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assumptions.assumeTrue
import org.junit.jupiter.api.BeforeAll
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.scheduling.annotation.Async
import org.springframework.scheduling.annotation.EnableAsync
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import java.io.IOException
import java.util.UUID
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CountDownLatch

/** Calls that hold a slot for as long as they run. */
open class Jobs {
    @Detect(eventId = "job", contentSpel = "#user")
    open fun plain(user: String, work: () -> String): String = work()

    @Detect(eventId = "job", contentSpel = "#user", refundOnException = true)
    open fun refunded(user: String, work: () -> String): String = work()

    @Detect(eventId = "job", contentSpel = "#user")
    open fun future(user: String, work: CompletableFuture<String>): CompletableFuture<String> = work

    @Detect(eventId = "job", contentSpel = "#user")
    open fun mono(user: String, work: Mono<String>): Mono<String> = work

    @Detect(eventId = "job", contentSpel = "#user")
    open fun flux(user: String, work: Flux<Int>): Flux<Int> = work

    @Detect(eventId = "job", contentSpel = "#user")
    open fun flow(user: String): Flow<Int> = flow { repeat(3) { emit(it) } }

    @Detect(eventId = "job", contentSpel = "#user")
    open suspend fun suspending(user: String, begun: CompletableDeferred<Unit>, how: String): String {
        begun.complete(Unit)
        delay(if (how == "cancel") 600_000 else 1)
        if (how == "fail") throw IOException("no image")
        return how
    }

    @Async
    @Detect(eventId = "job", contentSpel = "#user")
    open fun async(user: String, begun: CountDownLatch, end: CountDownLatch) {
        begun.countDown()
        end.await()
    }
}

@EnableAsync
class AsyncSettings

class HoldTest {
    private val runner = ApplicationContextRunner()
        .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java))
        .withUserConfiguration(AsyncSettings::class.java)
        .withBean(Jobs::class.java)

    private lateinit var manager: DetectManager
    private val user = UUID.randomUUID().toString()

    private fun run(test: (Jobs) -> Unit) {
        runner.withPropertyValues("weir.url=${weir!!.url}", "weir.deadline=10s").run { context ->
            manager = context.getBean(DetectManager::class.java)
            test(context.getBean(Jobs::class.java))
        }
    }

    /** Charges nothing, and holds nothing for longer than that takes. */
    private fun isFree(): Boolean {
        val verdict = manager.match("job", user)
        if (verdict.allowed) manager.refund(verdict)
        return verdict.allowed
    }

    @Test
    fun `by hand`() = run {
        val verdict = manager.match("job", user)
        assertNotNull(verdict.hold)
        assertNull(verdict.receipt)
        assertFalse(isFree())
        assertEquals(listOf(2, 0), List(2) { manager.release(verdict) })
        assertTrue(isFree())
        val both = manager.match("job", user, refundable = true)
        assertEquals(both.receipt, both.hold)
        assertEquals(2, runBlocking { manager.releaseSuspending(both) })
        assertTrue(isFree())
    }

    private fun untilFree() {
        until("the slot is free") { isFree().takeIf { it } }
    }

    @Test
    fun `a plain call`() = run { jobs ->
        repeat(2) {
            assertEquals("done", jobs.plain(user) { assertFalse(isFree()); refused { jobs.plain(user) { "no" } }; "done" })
            assertTrue(isFree())
            assertThrows<IOException> { jobs.plain(user) { throw IOException("no image") } }
            assertTrue(isFree())
            assertThrows<IOException> { jobs.refunded(user) { assertFalse(isFree()); throw IOException("no image") } }
            assertTrue(isFree())
            assertEquals("done", jobs.refunded(user) { "done" })
            assertTrue(isFree())
        }
    }

    @Test
    fun `a future`() = run { jobs ->
        for (end in listOf<(CompletableFuture<String>) -> Unit>(
            { it.complete("done") }, { it.completeExceptionally(IOException()) }, { it.cancel(true) },
        )) {
            val work = CompletableFuture<String>()
            val result = jobs.future(user, work)
            until("it runs") { (!isFree()).takeIf { it } }
            end(work)
            runCatching { result.get() }
            untilFree()
        }
    }

    @Test
    fun `Mono and Flux`() = run { jobs ->
        assertEquals("false", jobs.mono(user, Mono.fromCallable { isFree().toString() }).block())
        assertTrue(isFree())
        assertThrows<Exception> { jobs.mono(user, Mono.error(IOException())).block() }
        assertTrue(isFree())
        assertNull(jobs.mono(user, Mono.empty()).block())
        assertTrue(isFree())
        val subscription = jobs.mono(user, Mono.never()).subscribe()
        until("it runs") { (!isFree()).takeIf { it } }
        subscription.dispose()
        untilFree()
        assertEquals(listOf(1, 2, 3), jobs.flux(user, Flux.range(1, 3)).collectList().block())
        assertTrue(isFree())
        assertEquals(1, jobs.flux(user, Flux.range(1, 3)).next().block())
        untilFree()
        assertThrows<Exception> { jobs.flux(user, Flux.error(IOException())).collectList().block() }
        assertTrue(isFree())
    }

    /** [isFree] asks over the same connection, hence after the call that was cancelled. */
    @Test
    fun `cancelled before the answer is here`() = run { jobs ->
        repeat(10) {
            jobs.mono(user, Mono.never()).subscribe().dispose()
            untilFree()
            jobs.flux(user, Flux.never()).subscribe().dispose()
            untilFree()
        }
    }

    @Test
    fun `coroutines`() = run { jobs ->
        runBlocking {
            assertEquals(listOf(0, 1, 2), jobs.flow(user).toList())
            assertTrue(isFree())
            assertEquals(0, jobs.flow(user).first())
            untilFree()
            assertEquals("end", jobs.suspending(user, CompletableDeferred(), "end"))
            assertTrue(isFree())
            assertThrows<IOException> { jobs.suspending(user, CompletableDeferred(), "fail") }
            assertTrue(isFree())
            val begun = CompletableDeferred<Unit>()
            val job = launch { assertThrows<CancellationException> { jobs.suspending(user, begun, "cancel") } }
            begun.await()
            assertFalse(isFree())
            job.cancelAndJoin()
            untilFree()
        }
    }

    @Test
    fun `in an executor's thread`() = run { jobs ->
        val (begun, end) = List(2) { CountDownLatch(1) }
        jobs.async(user, begun, end)
        begun.await()
        assertFalse(isFree())
        end.countDown()
        untilFree()
    }

    companion object {
        private var weir: Weir? = null

        @BeforeAll
        @JvmStatic
        fun start() {
            weir = runCatching {
                Weir(
                    rules = """
                    rules:
                      - id: job
                        match: { event: job }
                        by: [key]
                        limits:
                          - { name: running, concurrent: 1, ttl: 1h }
                          - { name: day, algorithm: fixed_window, max: 1000, per: 24h }
                    """.trimIndent(),
                )
            }.getOrNull()
            assumeTrue(weir != null, "this weir does not read limits with `concurrent`")
        }

        @AfterAll
        @JvmStatic
        fun end() {
            weir?.close()
        }
    }
}
