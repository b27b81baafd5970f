package io.weir.spring

import io.lettuce.core.ClientOptions
import io.lettuce.core.RedisChannelHandler
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisCommandExecutionException
import io.lettuce.core.RedisConnectionStateListener
import io.lettuce.core.RedisURI
import io.lettuce.core.SocketOptions
import io.lettuce.core.api.StatefulRedisConnection
import io.lettuce.core.codec.StringCodec
import io.lettuce.core.resource.DefaultClientResources
import org.slf4j.LoggerFactory
import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit.MILLISECONDS

internal typealias Connection = StatefulRedisConnection<String, String>

/**
 * The one connection to weir. It is made in the background, and made anew when it is lost, or silent although it was asked.
 * Lettuce would make a lost one anew, but not a first one that failed, nor a silent one: here one way serves for all three.
 *
 * `current` is what a call finds: a connection; or one that is just being made, for which it waits as long as its deadline
 * allows; or, from the first failed attempt until one succeeds, the reason why there is none, without any wait.
 */
internal class Link(url: String) : AutoCloseable {
    private val log = LoggerFactory.getLogger(Link::class.java)
    private val uri = read(url)
    private val name = uri.socket ?: "${uri.host}:${uri.port}"
    private val resources = DefaultClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2).build()
    private val client = RedisClient.create(resources).apply { options = OPTIONS }

    @Volatile private var current = CompletableFuture<Connection>()
    @Volatile private var silentSince = 0L
    private var connectedAt = 0L

    /** Why there is none, as the log has it already. */
    private var told: String? = null

    @Volatile private var closed = false

    /** Waits a little, so that the first call of an application need not. A weir that is away is no error. */
    fun open() {
        attempt()
        current.handle { _, _ -> }.completeOnTimeout(Unit, PATIENCE.toMillis(), MILLISECONDS).join()
    }

    /** Fails if there is no connection, and may never be answered: who asks has a deadline. */
    fun <T> send(message: Message<T>): CompletableFuture<T> = current.thenCompose { post(it, message) }

    private fun <T> post(to: Connection, message: Message<T>): CompletableFuture<T> =
        to.async().dispatch(message.command, message.output, message.args).toCompletableFuture().whenComplete { _, error ->
            if (error == null || error is RedisCommandExecutionException) silentSince = 0
        }

    // ---- silence ----

    /** Somebody waited in vain. If nothing at all has come for a while, the other end is gone without a word. */
    fun missed() {
        val now = System.nanoTime()
        if (silentSince == 0L) {
            silentSince = now
        } else if (now - silentSince > PATIENCE.toNanos()) {
            silentSince = 0
            connection()?.closeAsync()
        }
    }

    private fun connection(): Connection? = current.takeIf { it.isDone && !it.isCompletedExceptionally }?.join()

    // ---- making it ----

    private fun attempt() {
        if (closed) return
        CompletableFuture.completedFuture(uri).thenCompose { client.connectAsync(StringCodec.UTF8, it) }.thenCompose(::greet)
            .whenComplete { made, error -> if (made != null) connected(made) else failed(error) }
    }

    private fun greet(made: Connection): CompletableFuture<Connection> =
        post(made, greeting()).orTimeout(PATIENCE.toMillis(), MILLISECONDS).handle { _, error ->
            if (error != null) {
                made.closeAsync()
                throw error
            }
            made
        }

    @Synchronized
    private fun connected(made: Connection) {
        if (closed) {
            made.closeAsync()
            return
        }
        connectedAt = System.nanoTime()
        silentSince = 0
        if (told != null) log.info("weir at {} answers", name)
        told = null
        if (!current.complete(made)) current = CompletableFuture.completedFuture(made)
        made.addListener(object : RedisConnectionStateListener {
            override fun onRedisDisconnected(connection: RedisChannelHandler<*, *>) = lost(made)
        })
        if (!made.isOpen) lost(made)
    }

    /** A connection that had lived is replaced at once (weir closes idle ones), one that had not only after a pause. */
    @Synchronized
    private fun lost(was: Connection) {
        if (closed || connection() !== was) return
        current = CompletableFuture()
        if (System.nanoTime() - connectedAt > PAUSE.toNanos()) attempt() else failed(IllegalStateException("it hangs up"))
    }

    @Synchronized
    private fun failed(error: Throwable) {
        if (closed) return
        val reason = reason(error)
        current.completeExceptionally(IllegalStateException("weir at $name is out of reach: $reason"))
        if (reason != told) log.warn("weir at {} is out of reach: {}; calls go by weir.when-unreachable", name, reason)
        told = reason
        resources.eventExecutorGroup().schedule(::attempt, PAUSE.toMillis(), MILLISECONDS)
    }

    private fun reason(error: Throwable): String {
        val cause = generateSequence(error) { it.cause }.last()
        val text = cause.message ?: cause.javaClass.simpleName
        return when {
            cause !is RedisCommandExecutionException -> text
            text.startsWith("NOAUTH") || text.startsWith("WRONGPASS") -> "it answers \"$text\": weir.url needs its token"
            else -> "it answers \"$text\": is that a weir, and not older than this client?"
        }
    }

    override fun close() {
        synchronized(this) {
            closed = true
            current.completeExceptionally(IllegalStateException("the application ends"))
        }
        client.shutdown(Duration.ZERO, PATIENCE)
        resources.shutdown(0, PATIENCE.toMillis(), MILLISECONDS)
    }

    private companion object {
        fun read(url: String): RedisURI = try {
            RedisURI.create(url).apply { timeout = PATIENCE }
        } catch (e: IllegalArgumentException) {
            throw IllegalArgumentException("weir.url must look like redis://HOST:PORT or redis://:TOKEN@HOST:PORT", e)
        }

        /** For a connection to be made, and for a silent one to say something. */
        val PATIENCE: Duration = Duration.ofSeconds(1)

        /** Between attempts. */
        val PAUSE: Duration = Duration.ofMillis(500)

        /** How many commands may wait for their answers: a bound for memory, far above what is useful. */
        const val WAITING_MAX = 10_000

        val OPTIONS: ClientOptions = ClientOptions.builder()
            .autoReconnect(false)
            .disconnectedBehavior(ClientOptions.DisconnectedBehavior.REJECT_COMMANDS)
            .requestQueueSize(WAITING_MAX)
            .socketOptions(SocketOptions.builder().connectTimeout(PATIENCE).build())
            .build()
    }
}
