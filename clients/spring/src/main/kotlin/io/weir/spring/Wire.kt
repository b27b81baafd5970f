package io.weir.spring

import io.lettuce.core.codec.StringCodec
import io.lettuce.core.output.CommandOutput
import io.lettuce.core.output.IntegerOutput
import io.lettuce.core.protocol.CommandArgs
import io.lettuce.core.protocol.ProtocolKeyword
import java.nio.ByteBuffer
import java.security.MessageDigest
import java.time.Duration
import java.util.HexFormat

/** One question to weir. */
internal class Question(
    val event: String,
    val key: String,
    val cost: Long,
    val receipt: Boolean,
    /** In other units than requests. */
    val costs: Map<String, Long> = emptyMap(),
)

/** A command of weir with its words, and a place for the answer. */
internal class Message<T>(val command: ProtocolKeyword, val output: CommandOutput<String, String, T>, words: List<String>) {
    val args: CommandArgs<String, String> = CommandArgs(StringCodec.UTF8).addValues(words)
}

internal fun check(question: Question): Message<List<Any?>> {
    val reply = if (question.receipt) "receipt" else "long"
    val words = mutableListOf("event", bounded(question.event), "key", bounded(question.key), "reply", reply, "answer", "always")
    if (question.cost != 1L || question.costs.isNotEmpty()) words += listOf("cost", question.cost.toString())
    for ((unit, amount) in question.costs) words += listOf("cost:$unit", amount.toString())
    return Message(CHECK, Items(), words)
}

/** Changes nothing; who answers it is a weir that knows what this client needs. */
internal fun greeting(): Message<List<Any?>> = Message(PEEK, Items(), listOf("reply", "long"))

/** A receipt says by itself what it is for. */
internal fun refund(receipt: String): Message<Long> = Message(REFUND, IntegerOutput(StringCodec.UTF8), listOf(receipt))

/** Frees the slots of a hold; the rest stays charged. */
internal fun release(hold: String): Message<Long> = Message(SETTLE, IntegerOutput(StringCodec.UTF8), listOf(hold))

/**
 * Whether a receipt that was asked for has slots to release, which the reply does not say. Where the text has another form than
 * the one that is known here, it may.
 */
private fun mayHold(receipt: String): Boolean {
    val known = receipt.startsWith("03") && receipt.length > 64
    return !known || (receipt.substring(8, 16) + receipt.substring(48, 64)).any { it != '0' }
}

/**
 * weir hangs up on a command that is too large, and then nobody is counted: no stranger's text may do that. A long one is
 * counted by its hash.
 */
private fun bounded(text: String): String {
    if (text.length <= TEXT_MAX / UTF8_MAX) return text
    val bytes = text.toByteArray()
    if (bytes.size <= TEXT_MAX) return text
    return "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes))
}

private const val TEXT_MAX = 4096

/** Bytes for one unit of a text at most. */
private const val UTF8_MAX = 3

/** It is answered, but not with what weir answers. */
internal class Misunderstood : RuntimeException("it answers something else than weir does")

/** The unit follows if it is not requests. */
internal fun understood(items: List<Any?>): List<Any?> = if (items.size >= ITEMS) items else throw Misunderstood()

/**
 * [allowed, rule, limit, max, remaining, reset_ms, retry_after_ms, window_ms, status, unavailable, receipt, unit, penalty, content type,
 * body] and names and values of headers.
 */
internal fun verdict(question: Question, answer: List<Any?>): Verdict {
    val items = understood(answer)
    val receipt = items[10] as String?
    return Verdict(
        event = question.event,
        key = question.key,
        allowed = items[0] == 1L,
        rule = items[1] as String?,
        limit = items[2] as String?,
        max = items[3] as Long?,
        remaining = items[4] as Long?,
        reset = time(items[5], from = 0),
        retryAfter = time(items[6], from = 1),
        window = time(items[7], from = 0),
        status = (items[8] as Long).toInt(),
        unavailable = items[9] == 1L,
        receipt = receipt.takeIf { question.receipt },
        hold = receipt?.takeIf { !question.receipt || mayHold(it) },
        unit = if (items.size > ITEMS) items[ITEMS] as String? else items[1]?.let { REQUESTS },
        penalty = items.size > ITEMS + 1 && items[ITEMS + 1] == 1L,
        written = items.drop(ITEMS + 4).chunked(2).associate { (name, value) -> name as String to value as String },
    )
}

/** Below `from` it means something else: no wait will help, or none is needed. */
private fun time(item: Any?, from: Long): Duration? = (item as Long?)?.takeIf { it >= from }?.let(Duration::ofMillis)

private class Keyword(private val text: String) : ProtocolKeyword {
    private val letters = text.toByteArray(Charsets.US_ASCII)

    override fun getBytes() = letters

    override fun toString() = text

    /** Lettuce before 6.6, which Spring Boot before 3.5 brings along, asks for this instead. */
    fun name() = text
}

private val CHECK: ProtocolKeyword = Keyword("WEIR.CHECK")
private val PEEK: ProtocolKeyword = Keyword("WEIR.PEEK")
private val REFUND: ProtocolKeyword = Keyword("WEIR.REFUND")
private val SETTLE: ProtocolKeyword = Keyword("WEIR.SETTLE")

/** A flat array of texts, numbers and nils. */
private class Items : CommandOutput<String, String, List<Any?>>(StringCodec.UTF8, ArrayList<Any?>(ITEMS)) {
    private val items = output as MutableList<Any?>

    override fun set(bytes: ByteBuffer?) {
        items += bytes?.let(codec::decodeValue)
    }

    override fun set(integer: Long) {
        items += integer
    }
}

private const val ITEMS = 11
