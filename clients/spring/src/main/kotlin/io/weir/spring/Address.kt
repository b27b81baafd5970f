package io.weir.spring

import io.lettuce.core.RedisCommandExecutionException
import io.lettuce.core.RedisCommandTimeoutException
import io.lettuce.core.RedisURI
import io.lettuce.core.SslVerifyMode
import java.io.IOException
import java.net.ConnectException
import java.net.UnknownHostException
import java.nio.channels.ClosedChannelException
import java.time.Duration
import java.util.concurrent.TimeoutException

/** Reads weir.url. What is wrong with it is told without it: there may be a token in it. */
internal fun address(url: String): RedisURI = runCatching { read(url) }.getOrNull() ?: throw Mistake(
    "weir.url is no address",
    "Write it as redis://HOST:PORT, rediss://HOST:PORT (with TLS) or redis://:TOKEN@HOST:PORT, with special characters in the token as %2F",
)

private fun read(url: String): RedisURI? {
    val uri = RedisURI.create(url).apply { timeout = PATIENCE }
    uri.setVerifyPeer(SslVerifyMode.FULL) // whatever the address says
    if (uri.socket != null) return uri
    // A name with a `_`, as Docker gives them, Lettuce does not take apart; and it takes the port of Redis if none is said.
    NAME_AND_PORT.matchEntire(uri.host)?.destructured?.let { (name, port) ->
        uri.host = name
        uri.port = port.toInt()
    }
    if (uri.port == RedisURI.DEFAULT_REDIS_PORT && ":${uri.port}" !in url) uri.port = WEIR_PORT
    val strayToken = '@' in url.substringAfter("://").substringAfter('/', "")
    return uri.takeUnless { strayToken || ':' in it.host && !it.host.startsWith("[") }
}

private val NAME_AND_PORT = Regex("([^:]+):(\\d+)")

/** For a connection to be made, and for a silent one to say something. */
internal val PATIENCE: Duration = Duration.ofSeconds(1)

private const val WEIR_PORT = 6380

/** Why weir cannot be reached, in a few words for the log. */
internal fun reason(error: Throwable): String {
    val causes = generateSequence(error) { it.cause }.toList()
    val text = (causes.last().message ?: causes.last().javaClass.simpleName).replace(NETTY, "").take(TEXT)
    return tlsReason(causes) ?: when {
        causes.any { it is TimeoutException || it is RedisCommandTimeoutException } -> "it does not answer"
        causes.any { it is UnknownHostException } -> "there is no host of that name"
        text.startsWith("NOAUTH") -> "it wants a token, as in weir.url=redis://:TOKEN@HOST:PORT"
        text.startsWith("WRONGPASS") -> "the token in weir.url is wrong"
        "refused" in text && causes.any { it is ConnectException } -> "nothing listens there"
        HANGS_UP.containsMatchIn(text) || causes.any { it is ClosedChannelException } -> "it hangs up. $PORT_HINT"
        causes.any { it is IOException } -> text
        causes.last() is RedisCommandExecutionException -> "it answers \"$text\". Is it a weir, and not older than this client?"
        else -> "it does not speak as weir does. $PORT_HINT"
    }
}

internal const val PORT_HINT = "Is it weir's port for Redis clients (6380)? With TLS write rediss://"
private val HANGS_UP = Regex("prematurely|Broken pipe|reset")

/** What it puts before the system's own words. */
private val NETTY = Regex("^\\S+ failed with error\\(-\\d+\\): ")

private const val TEXT = 80
