package io.weir.spring

import kotlinx.coroutines.runBlocking
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.aop.framework.ProxyFactory
import org.springframework.beans.factory.BeanFactory
import org.springframework.beans.factory.annotation.Autowired
import org.springframework.beans.factory.annotation.Qualifier
import org.springframework.scheduling.annotation.AsyncAnnotationAdvisor
import reactor.core.publisher.Mono
import java.io.IOException
import java.security.SecureRandom
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CountDownLatch
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit.SECONDS
import java.util.concurrent.atomic.AtomicBoolean

/** The annotation in the company of other proxies, bridges and aspects. */
class ProxiedTest(
    @Autowired private val client: Client,
    @Autowired private val numberClient: NumberClient,
    @Autowired private val searchClient: SearchClient,
    @Autowired private val repository: Repository,
    @Autowired private val heir: Heir,
    @Autowired private val contracted: HeirWithContract,
    @Autowired private val worker: MonoWorker,
    @Autowired @Qualifier("watched") private val watched: Watched,
    @Autowired private val manager: DetectManager,
    @Autowired private val beans: BeanFactory,
) : InApp() {
    private fun once(call: (String) -> Any?) {
        val user = someone()
        call(user)
        refused { call(user) }
    }

    @Test
    fun `an interface whose bean is a proxy is guarded`() {
        once(client::find)
        once(repository::find)
    }

    @Test
    fun `an interface of Kotlin is guarded also by way of its generic base, and counts the same`() {
        val byBase: Found<String> = client
        once(byBase::find)
        val (a, b) = List(2) { someone() }
        client.find(a)
        refused { byBase.find(a) }
        val numbersByBase: Found<Int> = numberClient
        val number = SecureRandom().nextInt()
        numbersByBase.find(number)
        refused { numberClient.find(number) }
        val searchByBase: Searched<String> = searchClient
        searchClient.search(b)
        refused { searchByBase.search(b) }
    }

    @Test
    fun `an inherited method of a hidden class is guarded`() = once(heir::submit)

    @Test
    fun `an interface's annotation holds for a method that the class inherits`() = once(contracted::agreed)

    @Test
    fun `aspects may stand behind a guard that does not block`() {
        once { watched.mono(it).block() }
        once { runBlocking { watched.suspending(it) } }
        val user = someone()
        assertEquals("done", watched.future(user).get())
        assertThrows<ExecutionException> { watched.future(user).get() }
    }

    @Test
    fun `a bean under a second name is charged once`() = once { beans.getBean("sameWatched", Watched::class.java).mono(it).block() }

    @Test
    fun `where @Async comes after weir already, it is asked once`() {
        val proxy = ProxyFactory(Busy()).apply {
            isProxyTargetClass = true
            addAdvisor(DetectAdvisor(Guards(beans)) { manager })
            addAdvisor(AsyncAnnotationAdvisor())
        }.proxy
        once((BeforeAsync().postProcessAfterInitialization(proxy, "busy") as Busy)::async)
    }

    @Test
    fun `an error that Reactor holds to be fatal fails the future, and is given back`() {
        val user = someone()
        repeat(2) {
            val error = assertThrows<ExecutionException> { watched.broken(user).get(10, SECONDS) }
            assertTrue(error.cause is NoClassDefFoundError, "$error")
        }
    }

    @Test
    fun `refundOnException sees a future or Mono that the declared type hides`() {
        val (a, b) = List(2) { someone() }
        val failed = CompletableFuture.failedFuture<String>(IOException("no image"))
        repeat(2) { assertThrows<ExecutionException> { watched.lessThanAFuture(a, failed).get() } }
        repeat(2) { assertThrows<Exception> { worker.work(b, Mono.error(IOException("no image"))).block() } }
        assertEquals("done", worker.work(b, Mono.just("done")).block())
        refused { worker.work(b, Mono.just("done")).block() }
    }

    @Test
    fun `a thread that waits for beans does not keep others from calling`() {
        val (waits, go) = List(2) { CountDownLatch(1) }
        val first = AtomicBoolean(true)
        val advisor = DetectAdvisor(Guards(beans)) {
            if (first.getAndSet(false)) {
                waits.countDown()
                go.await()
            }
            manager
        }
        val ocr = ProxyFactory(Ocr()).apply { isProxyTargetClass = true; addAdvisor(advisor) }.proxy as Ocr
        // Not in the common pool: on few cores that has but one thread.
        fun call() = CompletableFuture.supplyAsync({ ocr.byPosition(someone(), "image") }, { Thread(it).start() })
        val waiting = call()
        waits.await()
        try {
            call().get(10, SECONDS)
        } finally {
            go.countDown()
        }
        waiting.get()
    }
}
