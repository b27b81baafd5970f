package io.weir.spring

import org.aopalliance.intercept.MethodInterceptor
import org.aspectj.lang.annotation.AfterReturning
import org.aspectj.lang.annotation.Aspect
import org.aspectj.lang.annotation.Before
import org.springframework.aop.framework.ProxyFactory
import org.springframework.beans.factory.annotation.Qualifier
import org.springframework.context.annotation.Bean
import org.springframework.context.annotation.Configuration
import org.springframework.stereotype.Component
import org.springframework.stereotype.Service
import reactor.core.publisher.Mono
import java.lang.reflect.Proxy
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Future

interface Found<T> {
    fun find(user: T): String
}

/** An interface without a class, as a declarative HTTP client or a repository has it. */
interface Client : Found<String> {
    @Detect(eventId = "one", contentSpel = "#user")
    override fun find(user: String): String
}

/** Its parameter is a primitive, which that of the generic base is not. */
interface NumberClient : Found<Int> {
    @Detect(eventId = "one", contentSpel = "#user")
    override fun find(user: Int): String
}

interface Searched<T> {
    @Detect(eventId = "one", contentSpel = "#user")
    fun search(user: T): String
}

/** Here it is the base alone that says it. */
interface SearchClient : Searched<String> {
    override fun search(user: String): String
}

@Detect(eventId = "one", contentSpel = "#arg1")
interface Repository {
    fun find(user: String): String
}

@Configuration(proxyBeanMethods = false)
class Proxies {
    /** By the JDK alone. */
    @Bean
    fun client(): Client = proxy()

    @Bean
    fun numberClient(): NumberClient = proxy()

    @Bean
    fun searchClient(): SearchClient = proxy()

    private inline fun <reified T> proxy(): T =
        Proxy.newProxyInstance(T::class.java.classLoader, arrayOf(T::class.java)) { proxy, method, _ ->
            if (method.name == "hashCode") System.identityHashCode(proxy) else "done"
        } as T

    /** The same bean under a second name. */
    @Bean
    fun sameWatched(@Qualifier("watched") watched: Watched): Any = watched

    /** By Spring, before a target that knows nothing of the interface. */
    @Bean
    fun repository(): Repository = ProxyFactory().apply {
        setTarget(Any())
        setInterfaces(Repository::class.java)
        addAdvice(MethodInterceptor { if (it.method.declaringClass == Repository::class.java) "done" else it.proceed() })
    }.getProxy(Repository::class.java.classLoader) as Repository
}

abstract class Worker<R> {
    @Detect(eventId = "one", contentSpel = "#arg1", refundOnException = true)
    open fun work(user: String, work: R): R = work
}

@Service
class MonoWorker : Worker<Mono<String>>()

/** An interface that has its say about a method that a class only inherits. */
abstract class Inheritance {
    open fun agreed(user: String) = "done"
}

@Service
class HeirWithContract : Inheritance(), Contract

@Service
class Watched {
    @Detect(eventId = "one", contentSpel = "#user")
    fun future(user: String): CompletableFuture<String> = CompletableFuture.completedFuture("done")

    @Detect(eventId = "one", contentSpel = "#user")
    fun mono(user: String): Mono<String> = Mono.just("done")

    @Detect(eventId = "one", contentSpel = "#user")
    suspend fun suspending(user: String) = "done"

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    fun broken(user: String): CompletableFuture<String> = throw NoClassDefFoundError("user = $user")

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    fun lessThanAFuture(user: String, work: CompletableFuture<String>): Future<String> = work
}

@Aspect
@Component
class Watcher {
    @Before("execution(* io.weir.spring.Watched.*(..))")
    fun before() = Unit

    @AfterReturning("execution(* io.weir.spring.Watched.*(..))")
    fun after() = Unit
}
