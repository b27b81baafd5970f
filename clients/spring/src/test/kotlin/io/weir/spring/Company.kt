package io.weir.spring

import org.springframework.context.annotation.Bean
import org.springframework.context.annotation.Import
import org.springframework.core.task.TaskDecorator
import org.springframework.retry.annotation.Backoff
import org.springframework.retry.annotation.EnableRetry
import org.springframework.retry.annotation.Retryable
import org.springframework.scheduling.annotation.Async
import org.springframework.scheduling.annotation.EnableAsync
import org.springframework.security.access.prepost.PreAuthorize
import org.springframework.security.concurrent.DelegatingSecurityContextRunnable
import org.springframework.security.config.annotation.method.configuration.EnableMethodSecurity
import org.springframework.security.config.annotation.method.configuration.EnableReactiveMethodSecurity
import org.springframework.security.core.context.SecurityContextHolder
import org.springframework.transaction.TransactionDefinition
import org.springframework.transaction.annotation.EnableTransactionManagement
import org.springframework.transaction.annotation.Transactional
import org.springframework.transaction.support.AbstractPlatformTransactionManager
import org.springframework.transaction.support.DefaultTransactionStatus
import reactor.core.publisher.Mono
import java.io.IOException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.Future
import java.util.concurrent.LinkedBlockingQueue
import java.util.concurrent.atomic.AtomicInteger

/** The annotation beside others that put something before methods. */
open class Busy {
    /** The threads in which work was done. */
    open val threads = LinkedBlockingQueue<Thread>()
    open val attempts = AtomicInteger()

    @PreAuthorize("hasRole('CLERK')")
    @Detect(eventId = "one", contentSpel = "#user")
    open fun secured(user: String) = "done"

    @Async
    @Detect(eventId = "one", contentSpel = "#user")
    open fun async(user: String) {
        threads += Thread.currentThread()
    }

    @Async
    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    open fun asyncFuture(user: String, work: CompletableFuture<Thread>): CompletableFuture<Thread> =
        if (work.isDone) work else CompletableFuture.completedFuture(Thread.currentThread())

    @Async
    @Detect(eventId = "one", contentSpel = "#user")
    open fun asyncWho(user: String): CompletableFuture<String> =
        CompletableFuture.completedFuture(SecurityContextHolder.getContext().authentication.name)

    @Async
    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    open fun asyncFailing(user: String): Future<String> = throw IOException("no image")

    @Async
    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    open fun asyncFailed(user: String): Future<String> = CompletableFuture.failedFuture(IOException("no image"))

    @Async
    @Retryable(maxAttempts = 3, retryFor = [Exception::class], backoff = Backoff(delay = 1))
    @Detect(eventId = "ocr", contentSpel = "#user")
    open fun asyncRetried(user: String, failures: Int): Future<Int> = CompletableFuture.completedFuture(retried(user, failures))

    @Transactional(rollbackFor = [IOException::class])
    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    open fun transactional(user: String, fail: Boolean) = if (fail) throw IOException("no image") else "done"

    @Retryable(maxAttempts = 3, retryFor = [Exception::class], backoff = Backoff(delay = 1))
    @Detect(eventId = "ocr", contentSpel = "#user")
    open fun retried(user: String, failures: Int): Int {
        val attempt = attempts.incrementAndGet()
        return if (attempt > failures) attempt else throw IOException("no image")
    }
}

@EnableMethodSecurity
@EnableAsync
@EnableTransactionManagement
@EnableRetry
@Import(Busy::class)
class Company {
    @Bean
    fun transactions() = Transactions()

    /** Hands on who is logged in. */
    @Bean
    fun decorator() = TaskDecorator(::DelegatingSecurityContextRunnable)
}

/** Begins, commits and rolls back nothing, and counts it. */
class Transactions : AbstractPlatformTransactionManager() {
    val begun = AtomicInteger()
    val rolledBack = AtomicInteger()

    override fun doGetTransaction() = Any()

    override fun doBegin(transaction: Any, definition: TransactionDefinition) {
        begun.incrementAndGet()
    }

    override fun doCommit(status: DefaultTransactionStatus) = Unit

    override fun doRollback(status: DefaultTransactionStatus) {
        rolledBack.incrementAndGet()
    }
}

open class ReactiveBusy {
    @PreAuthorize("hasRole('CLERK')")
    @Detect(eventId = "one", contentSpel = "#user")
    open fun secured(user: String): Mono<String> = Mono.just("done")
}

/** Retries stand before weir here, since an order says so. */
@EnableAsync
@EnableRetry(order = 1)
@Import(Busy::class)
class RetryingCompany

@EnableReactiveMethodSecurity
@Import(ReactiveBusy::class)
class ReactiveCompany
