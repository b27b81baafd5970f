package io.weir.spring

import io.weir.spring.WeirProperties.BlankContent
import reactor.core.publisher.Mono
import reactor.core.scheduler.Schedulers
import kotlin.coroutines.resume
import kotlin.coroutines.resumeWithException
import kotlin.coroutines.suspendCoroutine

/**
 * Asks weir whether something may be done. No call takes longer than `weir.deadline`.
 *
 * The forms with `Mono` and `Suspending` block no thread. A `Mono` asks each time that it is subscribed to. They go on in a
 * thread of weir's own, which must not block, or of the coroutine's dispatcher.
 *
 * With `refundable` the verdict has a receipt, for [refund]. `cost` counts for limits of requests, and `costs` for limits with
 * another `unit`: `mapOf("tokens" to 1200L)`. All units pass or fail together.
 */
class DetectManager internal constructor(private val asker: Asker, properties: WeirProperties) : AutoCloseable {
    private val blankPasses = properties.blankContent == BlankContent.PASS

    /** Asks, and waits for the verdict. */
    @JvmOverloads
    fun match(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Verdict {
        val question = question(event, key, cost, refundable, costs) ?: return passed(event, key)
        return asker.ask(listOf(question)).single()
    }

    /** The same, but a refusal is an [OperationTooFrequentException]. */
    @JvmOverloads
    fun matchExceptionally(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Verdict =
        orThrow(match(event, key, cost, refundable, costs))

    @JvmOverloads
    fun matchMono(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Mono<Verdict> = Mono.defer {
        val question = question(event, key, cost, refundable, costs)
        if (question == null) Mono.just(passed(event, key)) else asker.askMono(listOf(question)).map { it.single() }
    }

    @JvmOverloads
    fun matchExceptionallyMono(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Mono<Verdict> =
        matchMono(event, key, cost, refundable, costs).map(::orThrow)

    suspend fun matchSuspending(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Verdict =
        await(matchMono(event, key, cost, refundable, costs))

    suspend fun matchExceptionallySuspending(event: String, key: String?, cost: Long = 1, refundable: Boolean = false, costs: Costs = emptyMap()): Verdict =
        orThrow(matchSuspending(event, key, cost, refundable, costs))

    /**
     * Gives back what a call was charged whose verdict is `refundable`. Returns to how many limits: none if that was done
     * before, if the window is over, or if weir does not answer.
     */
    fun refund(verdict: Verdict): Int = asker.refund(verdict).join().toInt()

    fun refundMono(verdict: Verdict): Mono<Int> = Mono.fromFuture { asker.refund(verdict) }.map { it.toInt() }

    suspend fun refundSuspending(verdict: Verdict): Int = await(refundMono(verdict))

    /**
     * Frees the slots that a call holds, when it is over: its verdict has a `hold`. What it was charged besides stays. Returns
     * the number of limits: none if that was done before, or if weir does not answer. Then the slots end with their `ttl`.
     */
    fun release(verdict: Verdict): Int = asker.release(verdict).join().toInt()

    fun releaseMono(verdict: Verdict): Mono<Int> = Mono.fromFuture { asker.release(verdict) }.map { it.toInt() }

    suspend fun releaseSuspending(verdict: Verdict): Int = await(releaseMono(verdict))

    /** Null: the key is blank, and that passes. [where] is for what is wrong. */
    internal fun question(
        event: String,
        key: String?,
        cost: Long,
        receipt: Boolean,
        costs: Costs = emptyMap(),
        where: String = event,
    ): Question? {
        require(event.isNotBlank()) { "the event is blank; weir's rules know it by a name" }
        checkCost(cost, where)
        checkCosts(costs, where)
        if (!key.isNullOrBlank()) return Question(event, key, cost, receipt, costs)
        require(blankPasses) {
            "$where: the content is ${if (key == null) "null" else "blank"}, so nobody can be counted; give one, or let such " +
                "calls pass with weir.blank-content=pass"
        }
        return null
    }

    /** All pass or none: if one is refused, the others are given back. */
    internal fun admit(questions: List<Question>): List<Verdict> = allOrNothing(asker.ask(questions))

    /** Goes on in a thread in which the work may block. */
    internal fun admitMono(questions: List<Question>): Mono<List<Verdict>> =
        asker.askMono(questions, Schedulers.boundedElastic()).map(::allOrNothing)

    /** Without waiting for the answer. */
    internal fun giveBack(verdicts: List<Verdict>) = verdicts.forEach(asker::refund)

    /** The same; those without a hold have nothing to say. */
    internal fun letGo(verdicts: List<Verdict>) = verdicts.forEach(asker::release)

    private fun allOrNothing(verdicts: List<Verdict>): List<Verdict> {
        val refused = verdicts.firstOrNull { !it.allowed } ?: return verdicts
        giveBack(verdicts)
        throw OperationTooFrequentException(refused)
    }

    private fun orThrow(verdict: Verdict) = if (verdict.allowed) verdict else throw OperationTooFrequentException(verdict)

    private fun passed(event: String, key: String?) = Verdict(event, key, allowed = true)

    /** Of the standard library alone: applications without coroutines have no more. */
    private suspend fun <T> await(mono: Mono<T>): T = suspendCoroutine { waiting ->
        mono.subscribe(waiting::resume, waiting::resumeWithException)
    }

    override fun close() = asker.close()
}
