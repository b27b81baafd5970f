package io.weir.spring

import io.lettuce.core.RedisCommandExecutionException
import io.weir.spring.WeirProperties.WhenUnreachable
import org.slf4j.LoggerFactory
import reactor.core.publisher.Mono
import reactor.core.scheduler.Scheduler
import reactor.core.scheduler.Schedulers
import java.util.concurrent.CompletableFuture
import java.util.concurrent.CompletionException
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit.NANOSECONDS
import java.util.concurrent.TimeoutException
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.atomic.AtomicLong

/** Asks within the deadline, and says what holds if there is no answer. Without a link everything passes. */
internal class Asker(private val link: Link?, properties: WeirProperties, private val counter: DecisionCounter) : AutoCloseable {
    private val log = LoggerFactory.getLogger(Asker::class.java)
    private val deadline = properties.deadline.toNanos()
    private val allowUnreachable = properties.whenUnreachable == WhenUnreachable.ALLOW
    private val nextLog = AtomicLong(System.nanoTime())

    /** Others may keep Reactor's own threads busy for longer than the deadline. */
    private val own = Schedulers.newParallel("weir", 2, true)

    /** All questions are on their way before the first answer is waited for. */
    fun ask(questions: List<Question>): List<Verdict> {
        if (link == null) return questions.map(::unasked)
        val until = System.nanoTime() + deadline
        val answers = questions.map { link.send(check(it)) }
        return questions.zip(answers) { question, answer -> settle(question, await(answer, until)) }
    }

    /**
     * Asks at each subscription. Goes on elsewhere than in the connection's own thread, so that nobody blocks that. A subscriber that
     * cancels before it has the answer does not begin its work: what it was charged and holds is given back when the answer comes.
     */
    fun askMono(questions: List<Question>, on: Scheduler = own): Mono<List<Verdict>> {
        if (link == null) return Mono.fromCallable { questions.map(::unasked) }
        return Mono.defer {
            val answer = askLater(link, questions)
            val taken = AtomicBoolean()
            Mono.fromFuture(answer.copy()).publishOn(on).filter { taken.compareAndSet(false, true) }
                .doOnCancel { if (taken.compareAndSet(false, true)) answer.thenAccept { it.forEach(::refund) } }
        }
    }

    private fun askLater(link: Link, questions: List<Question>): CompletableFuture<List<Verdict>> {
        val verdicts = questions.map { question ->
            link.send(check(question)).orTimeout(deadline, NANOSECONDS).handle { items, error ->
                settle(question, if (error == null) Result.success(items) else Result.failure(error))
            }
        }
        return CompletableFuture.allOf(*verdicts.toTypedArray()).thenApply { verdicts.map { it.join() } }
    }

    /** To how many limits it was given back. */
    fun refund(verdict: Verdict): CompletableFuture<Long> = tell((verdict.receipt ?: verdict.hold)?.let(::refund))

    /** What cannot be told ends after its time to live. */
    fun release(verdict: Verdict): CompletableFuture<Long> = tell(verdict.hold?.let(::release))

    private fun tell(message: Message<Long>?): CompletableFuture<Long> {
        if (link == null || message == null) return CompletableFuture.completedFuture(0)
        return link.send(message).orTimeout(deadline, NANOSECONDS).exceptionally { error ->
            noteError(root(error))
            0
        }
    }

    private fun <T> await(answer: CompletableFuture<T>, until: Long): Result<T> = try {
        Result.success(answer.get(until - System.nanoTime(), NANOSECONDS))
    } catch (e: InterruptedException) {
        Thread.currentThread().interrupt()
        Result.failure(e)
    } catch (e: Exception) {
        Result.failure(e)
    }

    private fun settle(question: Question, items: Result<List<Any?>>): Verdict {
        val verdict = items.mapCatching { verdict(question, it) }.getOrElse { unanswered(question, root(it)) }
        counter.count(question.event, Outcome.of(verdict))
        return verdict
    }

    private fun unasked(question: Question) = Verdict(question.event, question.key, allowed = true)

    private fun unanswered(question: Question, error: Throwable): Verdict {
        if (error is TimeoutException) link?.missed()
        noteError(error)
        return Verdict(
            question.event, question.key, allowed = allowUnreachable, unreachable = true,
            unavailable = !allowUnreachable, status = if (allowUnreachable) 0 else UNAVAILABLE,
        )
    }

    /** An outage is the link's to tell, once. What weir itself objects to is told here, now and then. */
    private fun noteError(error: Throwable) {
        if (error !is RedisCommandExecutionException && error !is Misunderstood) return
        val now = System.nanoTime()
        val next = nextLog.get()
        if (now - next >= 0 && nextLog.compareAndSet(next, now + LOG_EVERY_NS))
            log.warn("weir cannot answer: {}; what it does not decide goes by weir.when-unreachable", error.message)
    }

    private fun root(error: Throwable): Throwable {
        val wrapped = error is CompletionException || error is ExecutionException
        return error.cause.takeIf { wrapped } ?: error
    }

    override fun close() {
        link?.close()
        own.dispose()
    }

    private companion object {
        const val UNAVAILABLE = 503
        const val LOG_EVERY_NS = 60_000_000_000
    }
}
