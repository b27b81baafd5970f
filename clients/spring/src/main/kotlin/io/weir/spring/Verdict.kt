package io.weir.spring

import java.io.Serializable
import java.time.Duration

/** What weir says of one call. */
data class Verdict(
    val event: String,
    val key: String?,
    val allowed: Boolean,
    /** The rule and the limit that are nearest to their end, or that refused; null: no rule applied. */
    val rule: String? = null,
    val limit: String? = null,
    val max: Long? = null,
    /** What is left after this call, in whole [unit]s. */
    val remaining: Long? = null,
    /** Until the limit is as if unused. */
    val reset: Duration? = null,
    /** The wait after which this call would pass; null: it has passed, or no wait will help. */
    val retryAfter: Duration? = null,
    /** The time in which [max] comes back. */
    val window: Duration? = null,
    /** The HTTP status of a refusal; 0: allowed. */
    val status: Int = if (allowed) 0 else 429,
    /** Refused since weir, or the store that it counts in, does not answer; not for being too frequent. */
    val unavailable: Boolean = false,
    /** weir did not answer in time, and `weir.when-unreachable` decided. */
    val unreachable: Boolean = false,
    /** What [DetectManager.refund] gives back, if the call was charged and a receipt was asked for. */
    val receipt: String? = null,
    /** What [max] and [remaining] count: `requests` unless the limit has another unit; null: no rule applied. */
    val unit: String? = null,
    /** What [DetectManager.release] frees: the call takes a slot of a limit of calls in flight. */
    val hold: String? = null,
    /** Refused because the rule has refused this key too often before: see `penalty` of rules. */
    val penalty: Boolean = false,
    /** What weir wrote for the client. */
    private val written: Map<String, String> = emptyMap(),
) : Serializable {
    /**
     * The headers for an answer, as weir wrote them: `RateLimit-Policy`, `RateLimit` and, if refused, `Retry-After` and those of
     * the rule. The setting `headers` of the rules may choose others.
     */
    fun headers(): Map<String, String> = written
}

/** The unit of limits that have no other. */
internal const val REQUESTS = "requests"

internal fun secondsUp(time: Duration?): Long = if (time == null) 0 else (time.toMillis() + 999) / 1000

/** Thrown instead of the call that weir refused. */
class OperationTooFrequentException(val verdict: Verdict) : RuntimeException(describe(verdict)) {
    val event: String get() = verdict.event
    val rule: String? get() = verdict.rule
    val limit: String? get() = verdict.limit
    val max: Long? get() = verdict.max
    val remaining: Long? get() = verdict.remaining
    val unit: String? get() = verdict.unit

    /** Null: no wait will help, or nobody knows. */
    val retryAfter: Duration? get() = verdict.retryAfter
}

private fun describe(verdict: Verdict): String {
    val why = when {
        verdict.unreachable -> "weir is out of reach, and weir.when-unreachable is refuse"
        verdict.unavailable -> "the store that weir counts in is out of reach, and rule ${verdict.rule} then refuses"
        else -> "rule ${verdict.rule}, limit ${verdict.limit} of ${verdict.max}" +
            verdict.unit?.takeIf { it != REQUESTS }?.let { " $it" }.orEmpty()
    }
    val wait = verdict.retryAfter?.let { "; try again in ${secondsUp(it)} s" } ?: ""
    return "${verdict.event} refused: $why$wait"
}
