package io.weir.spring

import io.lettuce.core.RedisClient
import io.lettuce.core.ScriptOutputType
import org.springframework.boot.WebApplicationType
import org.springframework.boot.autoconfigure.ImportAutoConfiguration
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.context.annotation.Import
import org.springframework.stereotype.Service
import java.util.concurrent.TimeUnit

@Service
class Guarded {
    @Detect(eventId = "ocr", contentSpel = "#arg1")
    fun guarded(user: String) = user.length

    fun bare(user: String) = user.length
}

@ImportAutoConfiguration(WeirAutoConfiguration::class)
@Import(Guarded::class)
class BenchApp

/** One call after another for a while; its time is the median, since whatever else the machine does only adds. */
private class Side(val name: String, private val call: (String) -> Any?) {
    private val times = LongArray(1 shl 20)

    fun median(nanos: Long): Double {
        val end = System.nanoTime() + nanos
        var count = 0
        var before = System.nanoTime()
        while (before < end && count < times.size) {
            checkNotNull(call(USERS[count % USERS.size]))
            val now = System.nanoTime()
            times[count++] = now - before
            before = now
        }
        times.sort(0, count)
        return times[count / 2] / 1e3
    }

    private companion object {
        val USERS = List(100_000) { "u${it * 7919L % 1_000_000}" }
    }
}

/**
 * WEIR-URL REDIS-URL SCRIPT ROUNDS SECONDS: prints a line of CSV for each round, the median microseconds of each side. All sides
 * are in one JVM, in turns; who begins changes. `bench/spring.py` starts it.
 */
fun main(args: Array<String>) {
    val (weir, redis, script) = args
    val rounds = args[3].toInt()
    val nanos = TimeUnit.SECONDS.toNanos(args[4].toLong())
    val app = SpringApplicationBuilder(BenchApp::class.java).web(WebApplicationType.NONE).logStartupInfo(false)
        .properties("weir.url=$weir", "weir.deadline=1s", "weir.when-unreachable=refuse", "spring.main.banner-mode=off").run()
    val client = RedisClient.create(redis)
    val commands = client.connect().sync()
    val sha = commands.scriptLoad(script)
    val guarded = app.getBean(Guarded::class.java)
    val sides = listOf(
        Side("guarded") { guarded.guarded(it) },
        Side("evalsha") { commands.evalsha<List<Any>>(sha, ScriptOutputType.MULTI, arrayOf(it), "1000000", "1000000") },
        Side("bare") { guarded.bare(it) },
    )
    println(sides.joinToString(",") { it.name })
    for (side in sides) repeat(2) { side.median(nanos) }
    for (round in 0 until rounds) {
        val order = if (round % 2 == 0) sides else sides.reversed()
        val medians = order.associate { it.name to it.median(nanos) }
        println(sides.joinToString(",") { "%.3f".format(medians[it.name]) })
    }
    client.shutdown()
    app.close()
}
