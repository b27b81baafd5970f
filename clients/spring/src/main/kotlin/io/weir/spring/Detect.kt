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
    /** What the call costs, in SpEL: a whole number from 0 to 9007199254740991. Blank: 1. */
    val cost: String = "",
    /** Gives the cost back if the method throws, or the future or publisher that it returns fails. */
    val refundOnException: Boolean = false,
)

/** Several [Detect]. Java and Kotlin both write `@Detect(…) @Detect(…)`, and the compiler makes this of it. */
@Target(AnnotationTarget.FUNCTION, AnnotationTarget.CLASS)
@Retention(AnnotationRetention.RUNTIME)
@MustBeDocumented
annotation class Detects(vararg val value: Detect)
