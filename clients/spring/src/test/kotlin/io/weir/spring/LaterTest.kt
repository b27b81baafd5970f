package io.weir.spring

import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.beans.factory.annotation.Autowired
import reactor.core.publisher.Mono
import java.io.IOException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException

class LaterTest(@Autowired private val later: Later, @Autowired private val java: JavaOcr) : InApp() {
    @Test
    fun `a Mono is decided at each subscription, and its method called only if it passes`() {
        val before = later.calls.get()
        val mono = later.mono(someone(), Mono.just("done"))
        assertEquals(before, later.calls.get())
        assertEquals("done", mono.block())
        refused { mono.block() }
        assertEquals(before + 1, later.calls.get())
    }

    @Test
    fun `a Mono that fails is given back`() {
        val user = someone()
        repeat(2) { assertThrows<Exception> { later.mono(user, Mono.error(IOException("no image"))).block() } }
        assertEquals("done", later.mono(user, Mono.just("done")).block())
        refused { later.mono(user, Mono.just("done")).block() }
    }

    @Test
    fun `Flux and Flow`() = runBlocking<Unit> {
        val (a, b, c) = List(3) { someone() }
        assertEquals(listOf(1, 2, 3), later.flux(a).collectList().block())
        refused { later.flux(a).collectList().block() }
        assertEquals(listOf(1, 2, 3), later.flow(b).toList())
        refused { runBlocking { later.flow(b).toList() } }
        assertEquals(listOf(1, 2, 3), later.suspendingFlow(c).toList())
        refused { runBlocking { later.suspendingFlow(c).toList() } }
    }

    @Test
    fun `a suspend function`() = runBlocking<Unit> {
        val user = someone()
        repeat(2) { assertThrows<IOException> { later.suspending(user, fail = true) } }
        assertEquals("done", later.suspending(user, fail = false))
        val refusal = assertThrows<OperationTooFrequentException> { later.suspending(user, fail = false) }
        assertEquals("day", refusal.limit)
    }

    @Test
    fun `Java - a CompletableFuture`() {
        val user = someone()
        val failed = CompletableFuture.failedFuture<String>(IOException("no image"))
        repeat(2) {
            val error = assertThrows<ExecutionException> { java.later(user, failed).get() }
            assertTrue(error.cause is IOException)
        }
        assertEquals("done", java.later(user, CompletableFuture.completedFuture("done")).get())
        val error = assertThrows<ExecutionException> { java.later(user, CompletableFuture()).get() }
        assertTrue(error.cause is OperationTooFrequentException)
    }

    @Test
    fun `costs in other units, given back where the work fails`() = runBlocking<Unit> {
        val (a, b, c) = List(3) { someone() }
        val all = 5000000000L
        val failed = IOException("no model")
        repeat(2) { assertThrows<Exception> { later.promptMono(a, all, Mono.error(failed)).block() } }
        assertEquals("done", later.promptMono(a, all, Mono.just("done")).block())
        assertEquals("tokens", refused { later.promptMono(a, 1, Mono.just("done")).block() }.unit)

        repeat(2) { assertThrows<IOException> { later.promptSuspending(b, all, fail = true) } }
        assertEquals("done", later.promptSuspending(b, all, fail = false))
        assertEquals("tokens", assertThrows<OperationTooFrequentException> { later.promptSuspending(b, 1, fail = false) }.unit)

        repeat(2) { assertThrows<ExecutionException> { java.promptLater(c, all, CompletableFuture.failedFuture(failed)).get() } }
        assertEquals("done", java.promptLater(c, all, CompletableFuture.completedFuture("done")).get())
        val error = assertThrows<ExecutionException> { java.promptLater(c, 1, CompletableFuture()).get() }
        assertEquals("tokens", (error.cause as OperationTooFrequentException).unit)
    }

    @Test
    fun `a blank content is an error signal`() {
        assertThrows<IllegalArgumentException> { later.mono("", Mono.just("done")).block() }
        assertThrows<ExecutionException> { java.later("", CompletableFuture()).get() }
    }
}
