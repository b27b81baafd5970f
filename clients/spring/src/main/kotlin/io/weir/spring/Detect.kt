package io.weir.spring

/**
 * Asks weir before the method is called, and throws [OperationTooFrequentException] if it says no.
 *
 * On a class it covers each public method; a method's own annotations replace those of its class. With several, all have to
 * pass: if one refuses, what the others were charged is given back.
 */
@Target(AnnotationTarget.FUNCTION, AnnotationTarget.CLASS)
@Retention(AnnotationRetention.RUNTIME)
@MustBeDocumented
@JvmRepeatable(Detects::class)
annotation class Detect(
    /** What is done, as the rules call it in `match: { event: … }`. */
    val eventId: String,
    /**
     * For whom, in SpEL; the rules count it by `key`. `#arg1` is the first argument, `#userId` the one of that name, `#request`
     * the HTTP request of this thread (servlets), and `@name` a bean.
     */
    val contentSpel: String,
    /** What the call costs in requests, in SpEL: a whole number from 0 to 9007199254740991. Blank: 1. */
    val cost: String = "",
    /** Gives the cost back, in all units, if the method throws, or the future or publisher that it returns fails. */
    val refundOnException: Boolean = false,
    /** What the call costs in other units, besides [cost]. All units pass or fail together. At most 16. */
    val costs: Array<Cost> = [],
)

/** What a call costs in another unit than requests, for limits with this `unit`. An argument of [Detect]. */
@Target
@Retention(AnnotationRetention.RUNTIME)
@MustBeDocumented
annotation class Cost(
    /** As the rules call it in `unit: tokens`: letters, digits, `_`, `-` and `.`; not `requests`, which is [Detect.cost]. */
    val unit: String,
    /** In SpEL: a whole number from 0 to 9007199254740991. */
    val amount: String,
)

/** Several [Detect]. Java and Kotlin both write `@Detect(…) @Detect(…)`, and the compiler makes this of it. */
@Target(AnnotationTarget.FUNCTION, AnnotationTarget.CLASS)
@Retention(AnnotationRetention.RUNTIME)
@MustBeDocumented
annotation class Detects(vararg val value: Detect)
