package io.weir.spring

import io.lettuce.core.ClientOptions
import io.lettuce.core.RedisChannelHandler
import io.lettuce.core.RedisClient
import io.lettuce.core.RedisCommandExecutionException
import io.lettuce.core.RedisConnectionStateListener
import io.lettuce.core.SocketOptions
import io.lettuce.core.api.StatefulRedisConnection
import io.lettuce.core.codec.StringCodec
import io.lettuce.core.resource.DefaultClientResources
import org.slf4j.LoggerFactory
import java.nio.channels.ClosedChannelException
import java.time.Duration
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit.MILLISECONDS
import java.util.concurrent.TimeoutException

internal typealias Connection = StatefulRedisConnection<String, String>

/** Nobody waits for a connection, and nothing is queued for one. */
internal object NoConnection : RuntimeException("there is no connection to weir", null, false, false) {
    private fun readResolve(): Any = NoConnection
}

/**
 * The one connection to weir. It is made in the background, and made anew when it is lost, or silent although it was asked.
 * Lettuce would make a lost one anew, but not a first one that failed, nor a silent one: here one way serves for all three.
 *
 * @param meanwhile what becomes of calls while there is none, for the log
 * @param tls the certificates, if the address has TLS
 * @param keepAlive the time between signs of life
 */
internal class Link(
    url: String,
    private val meanwhile: String,
    private val tls: Tls = Tls(WeirProperties.Ssl(), null),
    private val keepAlive: Duration = KEEP_ALIVE,
) : AutoCloseable {
    private val log = LoggerFactory.getLogger(Link::class.java)
    private val uri = address(url).also { tls.check(it.isSsl) }
    private val name = uri.socket ?: "${uri.host}:${uri.port}"
    private val resources = DefaultClientResources.builder().ioThreadPoolSize(2).computationThreadPoolSize(2).build()
    private val client = RedisClient.create(resources)

    @Volatile private var current: Connection? = null
    @Volatile private var silentSince = 0L
    private var connectedAt = 0L

    /** Why there is none, as the log has it already. */
    private var told: String? = ""

    @Volatile private var closed = false

    /** Waits a little, so that the first calls of an application find it. A weir that is away is no error. */
    fun open() {
        attempt().completeOnTimeout(Unit, PATIENCE.toMillis(), MILLISECONDS).join()
        resources.eventExecutorGroup().scheduleAtFixedRate(::askIdle, keepAlive.toMillis(), keepAlive.toMillis(), MILLISECONDS)
    }

    /** Fails at once if there is no connection, and may never be answered: who asks has a deadline. */
    fun <T> send(message: Message<T>): CompletableFuture<T> =
        current?.let { post(it, message) } ?: CompletableFuture.failedFuture(NoConnection)

    private fun <T> post(to: Connection, message: Message<T>): CompletableFuture<T> =
        to.async().dispatch(message.command, message.output, message.args).toCompletableFuture().whenComplete { _, error ->
            if (error == null || error is RedisCommandExecutionException) silentSince = 0
        }

    /** Somebody waited in vain. If nothing at all has come for a while, the other end is gone without a word. */
    fun missed() {
        val now = System.nanoTime()
        if (silentSince == 0L) silentSince = now
        else if (now - silentSince > PATIENCE.toNanos()) giveUp(current, TimeoutException())
    }

    /** weir closes a connection that is idle for a minute. And who is gone without a word is noticed before the next call. */
    private fun askIdle() {
        val idle = current ?: return
        greet(idle).whenComplete { _, error -> if (error != null) giveUp(idle, error) }
    }

    // ---- making it ----

    private fun attempt(): CompletableFuture<Unit> {
        if (closed) return CompletableFuture.completedFuture(Unit)
        return CompletableFuture.completedFuture(uri)
            .thenCompose {
                client.options = if (it.isSsl) OPTIONS.mutate().sslOptions(tls.options()).build() else OPTIONS
                client.connectAsync(StringCodec.UTF8, it)
            }
            .thenCompose { made -> greet(made).whenComplete { _, error -> if (error != null && !closed) made.closeAsync() } }
            .handle { made, error -> if (made != null) connected(made) else failed(error) }
    }

    /** Whether it is a weir, and there. */
    private fun greet(made: Connection): CompletableFuture<Connection> =
        post(made, greeting()).orTimeout(PATIENCE.toMillis(), MILLISECONDS).thenApply {
            understood(it)
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
        current = made
        made.addListener(object : RedisConnectionStateListener {
            override fun onRedisDisconnected(connection: RedisChannelHandler<*, *>) = lost(made)
        })
        if (!made.isOpen) lost(made)
    }

    /** A connection that had lived is replaced at once, one that had not only after a pause. */
    @Synchronized
    private fun lost(was: Connection) {
        if (!drop(was)) return
        if (System.nanoTime() - connectedAt > PAUSE.toNanos()) attempt() else failed(ClosedChannelException())
    }

    @Synchronized
    private fun giveUp(was: Connection?, why: Throwable) {
        if (was != null && drop(was)) failed(why)
    }

    /** Whether it was the current one. Lettuce keeps one that is not closed for good, even if the other end is. */
    private fun drop(was: Connection): Boolean {
        if (closed || current !== was) return false
        current = null
        silentSince = 0
        was.closeAsync()
        return true
    }

    @Synchronized
    private fun failed(error: Throwable) {
        if (closed) return
        val reason = reason(error)
        if (reason != told) log.warn("weir at {} is out of reach, and calls are {} until it answers: {}", name, meanwhile, reason)
        told = reason
        resources.eventExecutorGroup().schedule(::attempt, PAUSE.toMillis(), MILLISECONDS)
    }

    override fun close() {
        synchronized(this) {
            closed = true
            current = null
        }
        client.shutdown(Duration.ZERO, PATIENCE)
        resources.shutdown(0, PATIENCE.toMillis(), MILLISECONDS)
    }

    private companion object {
        /** Between attempts. */
        val PAUSE: Duration = Duration.ofMillis(500)

        val KEEP_ALIVE: Duration = Duration.ofSeconds(20)

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
