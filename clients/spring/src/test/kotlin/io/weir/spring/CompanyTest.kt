package io.weir.spring

import io.weir.spring.InApp.Companion.someone
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNotEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.autoconfigure.task.TaskExecutionAutoConfiguration
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.context.ApplicationContext
import org.springframework.security.access.AccessDeniedException
import org.springframework.security.authentication.UsernamePasswordAuthenticationToken.authenticated
import org.springframework.security.core.Authentication
import org.springframework.security.core.authority.AuthorityUtils.createAuthorityList
import org.springframework.security.core.context.ReactiveSecurityContextHolder.withAuthentication
import org.springframework.security.core.context.SecurityContextHolder
import reactor.core.publisher.Mono
import java.io.IOException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.ExecutionException

class CompanyTest {
    private val clerk = authenticated("ann", null, createAuthorityList("ROLE_CLERK"))
    private val guest = authenticated("bob", null, createAuthorityList("ROLE_GUEST"))

    private fun inCompany(type: Class<*>, test: (ApplicationContext) -> Unit) {
        ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java, TaskExecutionAutoConfiguration::class.java))
            .withUserConfiguration(type).withPropertyValues("weir.url=${Weir.shared.url}", "weir.deadline=10s").run(test)
    }

    private fun withBusy(test: (Busy) -> Unit) = inCompany(Company::class.java) { test(it.getBean(Busy::class.java)) }

    private fun <T> being(who: Authentication, call: () -> T): T {
        SecurityContextHolder.getContext().authentication = who
        return try {
            call()
        } finally {
            SecurityContextHolder.clearContext()
        }
    }

    @Test
    fun `who is not authorised is not charged, nor told of limits`() = withBusy { busy ->
        val user = someone()
        fun denied() = assertThrows<AccessDeniedException> { being(guest) { busy.secured(user) } }
        denied()
        assertEquals("done", being(clerk) { busy.secured(user) })
        being(clerk) { refused { busy.secured(user) } }
        denied()
    }

    @Test
    fun `nor is he with a Mono`() = inCompany(ReactiveCompany::class.java) { context ->
        val user = someone()
        fun call(who: Authentication): Mono<String> =
            context.getBean(ReactiveBusy::class.java).secured(user).contextWrite(withAuthentication(who))
        assertThrows<AccessDeniedException> { call(guest).block() }
        assertEquals("done", call(clerk).block())
        refused { call(clerk).block() }
        assertThrows<AccessDeniedException> { call(guest).block() }
    }

    @Test
    fun `@Async - a refusal reaches the caller, and the work is done elsewhere`() = withBusy { busy ->
        val user = someone()
        busy.async(user)
        assertNotEquals(Thread.currentThread(), busy.threads.take())
        refused { busy.async(user) }
        busy.async(someone())
        busy.threads.take()
        assertTrue(busy.threads.isEmpty())
    }

    @Test
    fun `@Async - a future fails if it is refused, and gives back if its work fails`() = withBusy { busy ->
        val user = someone()
        val failed = CompletableFuture.failedFuture<Thread>(IOException("no image"))
        repeat(2) { assertTrue(assertThrows<ExecutionException> { busy.asyncFuture(user, failed).get() }.cause is IOException) }
        val there = busy.asyncFuture(user, CompletableFuture()).get()
        assertTrue(there.name.startsWith("task-"), there.name)
        val error = assertThrows<ExecutionException> { busy.asyncFuture(user, failed).get() }
        assertTrue(error.cause is OperationTooFrequentException, "$error")
    }

    @Test
    fun `@Async - an executor can hand on what the caller's thread carries`() = withBusy { busy ->
        assertEquals("ann", being(clerk) { busy.asyncWho(someone()) }.get())
    }

    @Test
    fun `@Async - what fails without the caller is given back, too`() = withBusy { busy ->
        for (call in listOf(busy::asyncFailing, busy::asyncFailed)) {
            val user = someone()
            repeat(2) {
                val failed = until("it was given back") { runCatching { call(user) }.getOrNull() }
                assertThrows<ExecutionException> { failed.get() }
            }
        }
    }

    @Test
    fun `@Transactional - what is refused begins none, and what is rolled back is given back`() = inCompany(Company::class.java) {
        val user = someone()
        val busy = it.getBean(Busy::class.java)
        val transactions = it.getBean(Transactions::class.java)
        repeat(2) { assertThrows<IOException> { busy.transactional(user, fail = true) } }
        assertEquals("done", busy.transactional(user, fail = false))
        refused { busy.transactional(user, fail = false) }
        assertEquals(listOf(3, 2), listOf(transactions.begun.get(), transactions.rolledBack.get()))
    }

    @Test
    fun `@Retryable - weir is asked once for all attempts, and a refusal is not tried again`() = withBusy { busy ->
        val user = someone()
        assertEquals(3, busy.retried(user, failures = 2))
        repeat(2) { busy.retried(user, failures = 0) }
        refused { busy.retried(user, failures = 0) }
        assertEquals(5, busy.attempts.get())
    }

    @Test
    fun `@Retryable - where retries come before weir, each is charged`() = inCompany(RetryingCompany::class.java) {
        val busy = it.getBean(Busy::class.java)
        val (a, b) = List(2) { someone() }
        assertEquals(3, busy.retried(a, failures = 2))
        refused { busy.retried(a, failures = 0) }
        assertEquals(6, busy.asyncRetried(b, failures = 5).get())
        refused { busy.asyncRetried(b, failures = 0) }
    }
}
