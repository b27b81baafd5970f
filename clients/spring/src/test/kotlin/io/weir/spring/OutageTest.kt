package io.weir.spring

import io.micrometer.core.instrument.MeterRegistry
import io.micrometer.core.instrument.simple.SimpleMeterRegistry
import org.junit.jupiter.api.AfterAll
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Tag
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertTimeout
import org.junit.jupiter.api.extension.ExtendWith
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.test.context.assertj.AssertableApplicationContext
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.boot.test.system.CapturedOutput
import org.springframework.boot.test.system.OutputCaptureExtension
import reactor.core.publisher.Mono
import java.time.Duration
import java.util.concurrent.Callable
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit.SECONDS
import kotlin.coroutines.Continuation
import kotlin.coroutines.EmptyCoroutineContext
import kotlin.coroutines.startCoroutine

@ExtendWith(OutputCaptureExtension::class)
class OutageTest {
    private val runner = ApplicationContextRunner()
        .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java))
        .withBean(SimpleMeterRegistry::class.java)
        .withBean(Ocr::class.java).withBean(Later::class.java).withBean(JavaOcr::class.java)
        .withPropertyValues("weir.url=${weir.url}")

    private fun AssertableApplicationContext.match() = getBean(DetectManager::class.java).match("ocr", "outage", cost = 0)

    private fun AssertableApplicationContext.untilReached() = until("weir answers") { match().takeIf { !it.unreachable } }

    private fun AssertableApplicationContext.count(outcome: String) =
        getBean(MeterRegistry::class.java).counter("weir.decisions", "event", "ocr", "outcome", outcome).count()

    @Test
    fun `an application starts without weir, and finds it when it comes`() {
        weir.kill()
        runner.run { context ->
            val verdict = context.match()
            assertTrue(verdict.allowed && verdict.unreachable)
            assertEquals(1.0, context.count("unreachable-allowed"))
            context.getBean(Ocr::class.java).byPosition("x", "image")
            weir.start()
            context.untilReached()
        }
    }

    @Test
    fun `it can refuse while weir is away`() {
        weir.kill()
        runner.withPropertyValues("weir.when-unreachable=refuse").run { context ->
            val refusal = refused { context.getBean(Ocr::class.java).byPosition("x", "image") }
            assertEquals(503, refusal.verdict.status)
            assertTrue("out of reach" in refusal.message!!)
            refused { context.getBean(Later::class.java).mono("x", Mono.just("done")).block() }
            assertFalse(context.match().allowed)
            assertEquals(1.0, context.count("unreachable-refused"))
        }
        weir.start()
    }

    @Test
    fun `a weir that was killed and started again is found`() {
        runner.run { context ->
            context.untilReached()
            weir.kill()
            until("the loss is noticed") { context.match().takeIf { it.unreachable } }
            weir.start()
            context.untilReached()
        }
    }

    @Test
    fun `a weir that stands still costs the deadline, and its connection is given up`(output: CapturedOutput) {
        runner.run { context ->
            context.untilReached()
            weir.stop()
            try {
                val verdict = assertTimeout(Duration.ofSeconds(10)) { context.match() }
                assertTrue(verdict.allowed && verdict.unreachable)
                until("the connection is given up") {
                    context.match()
                    output.all.takeIf { "weir at 127.0.0.1:${weir.port} is out of reach" in it }
                }
            } finally {
                weir.goOn()
            }
            context.untilReached()
        }
    }

    @Test
    fun `futures, Monos and suspend functions wait for weir without their callers`() {
        runner.withPropertyValues("weir.deadline=1m").run { context ->
            context.untilReached()
            weir.stop()
            val waiting = try {
                val done = CompletableFuture.completedFuture("done")
                listOf(
                    context.getBean(JavaOcr::class.java).later(InApp.someone(), done),
                    context.getBean(Later::class.java).mono(InApp.someone(), Mono.just("done")).toFuture(),
                    CompletableFuture<String>().also { future ->
                        suspend { context.getBean(Later::class.java).suspending(InApp.someone(), fail = false) }.startInto(future)
                    },
                ).onEach { assertFalse(it.isDone) }
            } finally {
                weir.goOn()
            }
            for (future in waiting) assertEquals("done", future.get())
        }
    }

    /** The compiler knows the oldest JDK that the module is for, not the one that the tests run on. */
    @Test
    @Tag("java-21")
    fun `calls on virtual threads wait for weir without the threads that carry them`() {
        val virtual = Executors::class.java.getMethod("newVirtualThreadPerTaskExecutor").invoke(null) as ExecutorService
        runner.withPropertyValues("weir.deadline=1m").run { context ->
            context.untilReached()
            val ocr = context.getBean(Ocr::class.java)
            weir.stop()
            val waiting = try {
                List(200) { virtual.submit(Callable { ocr.byPosition(InApp.someone(), "image") }) }.also { all ->
                    assertEquals("here", virtual.submit(Callable { "here" }).get(10, SECONDS))
                    assertTrue(all.none { it.isDone })
                }
            } finally {
                weir.goOn()
            }
            for (call in waiting) assertTrue(call.get().startsWith("image of "))
        }
        virtual.shutdown()
    }

    @Test
    fun `only so many can wait for an answer`() {
        runner.withPropertyValues("weir.deadline=1m").run { context ->
            context.untilReached()
            weir.stop()
            val question = context.getBean(DetectManager::class.java).matchMono("ocr", InApp.someone())
            val asked = try {
                List(11_000) { question.toFuture() }.also { all ->
                    until<Int>("1000 or more are told at once") { all.count { it.isDone }.takeIf { it >= 1000 } }
                }
            } finally {
                weir.goOn()
            }
            assertTrue(asked.count { it.get().unreachable } >= 1000)
        }
    }

    private companion object {
        val weir = Weir()

        @AfterAll
        @JvmStatic
        fun end() = weir.close()
    }
}

/** Starts a coroutine here, without a dispatcher. */
private fun <T> (suspend () -> T).startInto(future: CompletableFuture<T>) {
    startCoroutine(Continuation(EmptyCoroutineContext) { it.fold(future::complete, future::completeExceptionally) })
}
