package io.weir.spring

import io.micrometer.core.instrument.Counter
import io.micrometer.core.instrument.MeterRegistry
import java.util.concurrent.ConcurrentHashMap

internal enum class Outcome(val tag: String) {
    ALLOWED("allowed"),
    REFUSED("refused"),
    UNREACHABLE_ALLOWED("unreachable-allowed"),
    UNREACHABLE_REFUSED("unreachable-refused"),
    ;

    companion object {
        fun of(verdict: Verdict): Outcome = when {
            verdict.unreachable -> if (verdict.allowed) UNREACHABLE_ALLOWED else UNREACHABLE_REFUSED
            else -> if (verdict.allowed) ALLOWED else REFUSED
        }
    }
}

internal fun interface DecisionCounter {
    fun count(event: String, outcome: Outcome)
}

/** `weir.decisions`, by event and outcome: both are few. */
internal class MicrometerCounter(private val registries: List<MeterRegistry>) : DecisionCounter {
    private val counters = ConcurrentHashMap<String, List<List<Counter>>>()

    override fun count(event: String, outcome: Outcome) =
        counters.computeIfAbsent(event, ::register)[outcome.ordinal].forEach(Counter::increment)

    private fun register(event: String) = Outcome.entries.map {
        val counter = Counter.builder("weir.decisions").description("What weir decided, or what held without it")
            .tag("event", event).tag("outcome", it.tag)
        registries.map(counter::register)
    }
}
