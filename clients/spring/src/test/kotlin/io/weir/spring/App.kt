package io.weir.spring

import io.micrometer.core.instrument.simple.SimpleMeterRegistry
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flowOf
import org.springframework.boot.autoconfigure.SpringBootApplication
import org.springframework.cache.annotation.Cacheable
import org.springframework.cache.annotation.EnableCaching
import org.springframework.context.annotation.Bean
import org.springframework.stereotype.Component
import org.springframework.stereotype.Service
import org.springframework.web.bind.annotation.GetMapping
import org.springframework.web.bind.annotation.RequestParam
import org.springframework.web.bind.annotation.RestController
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import java.io.IOException
import java.util.concurrent.atomic.AtomicInteger

/** What users write. */
@SpringBootApplication
@EnableCaching
class App {
    @Bean
    fun meters() = SimpleMeterRegistry()
}

class User(val id: String?)

@Component("tenant")
class Tenant {
    var id: String = ""
}

@Service
class Ocr {
    @Detect(eventId = "one", contentSpel = "#arg1")
    fun byPosition(userId: String, imageUrl: String) = "$imageUrl of $userId"

    @Detect(eventId = "one", contentSpel = "#user.id")
    fun byName(user: User) = "done"

    @Detect(eventId = "one", contentSpel = "#request.getHeader('X-User')")
    fun byHeader() = "done"

    @Detect(eventId = "one", contentSpel = "#request")
    fun ownRequest(request: String) = "done"

    @Detect(eventId = "unknown", contentSpel = "#thing")
    fun byAny(thing: Any) = "done"

    @Detect(eventId = "one", contentSpel = "#of[key] + #ids.![toString()][0]")
    fun byWords(of: Map<String, String>, ids: List<Int>) = "done"

    @Detect(eventId = "one", contentSpel = "@tenant.id")
    fun byBean() = "done"

    @Cacheable("results")
    @Detect(eventId = "one", contentSpel = "#user")
    fun cached(user: String) = "done"

    @Detect(eventId = "ocr", contentSpel = "#user", cost = "#cost")
    fun costly(user: String, cost: Any?) = "done"

    @Detect(eventId = "llm", contentSpel = "#user", costs = [Cost("tokens", "#tokens"), Cost("images", "2")])
    fun prompt(user: String, tokens: Any?) = "done"

    @Detect(eventId = "llm", contentSpel = "#user", costs = [Cost("tokens", "#arg2")], refundOnException = true)
    fun failingPrompt(user: String, tokens: Long): String = throw IOException("no model")

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    @Detect(eventId = "ocr", contentSpel = "#user")
    fun failing(user: String): String = throw IOException("no image")
}

open class FinalInherited {
    fun unknown() = "done"
}

@Service
@Detect(eventId = "one", contentSpel = "#user")
class Covered : FinalInherited() {
    fun plain(user: String) = "done"

    @Detect(eventId = "ocr", contentSpel = "#user")
    fun own(user: String) = "done"
}

interface Contract {
    @Detect(eventId = "one", contentSpel = "#arg1")
    fun agreed(user: String): String
}

@Service
class Party : Contract {
    override fun agreed(user: String) = "done"
}

@Target(AnnotationTarget.FUNCTION)
@Detect(eventId = "one", contentSpel = "#arg1")
annotation class OncePerUser

@Target(AnnotationTarget.FUNCTION)
@Detect(eventId = "llm", contentSpel = "#arg1", costs = [Cost("tokens", "5000000000L")])
annotation class AllTokens

@Service
class Composed {
    @OncePerUser
    fun once(user: String) = "done"

    @AllTokens
    fun prompt(user: String) = "done"
}

@Service
class Later {
    val calls = AtomicInteger()

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    fun mono(user: String, work: Mono<String>): Mono<String> {
        calls.incrementAndGet()
        return work
    }

    @Detect(eventId = "llm", contentSpel = "#user", costs = [Cost("tokens", "#tokens")], refundOnException = true)
    fun promptMono(user: String, tokens: Long, work: Mono<String>): Mono<String> = work

    @Detect(eventId = "llm", contentSpel = "#user", costs = [Cost("tokens", "#tokens")], refundOnException = true)
    suspend fun promptSuspending(user: String, tokens: Long, fail: Boolean): String {
        delay(1)
        if (fail) throw IOException("no model")
        return "done"
    }

    @Detect(eventId = "one", contentSpel = "#user")
    fun flux(user: String): Flux<Int> = Flux.range(1, 3)

    @Detect(eventId = "one", contentSpel = "#user")
    fun flow(user: String): Flow<Int> = flowOf(1, 2, 3)

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    suspend fun suspending(user: String, fail: Boolean): String {
        delay(1)
        if (fail) throw IOException("no image")
        return "done"
    }

    @Detect(eventId = "one", contentSpel = "#user")
    suspend fun suspendingFlow(user: String): Flow<Int> = flowOf(1, 2, 3)
}

@RestController
class OcrController(private val ocr: Ocr, private val later: Later) {
    @Detect(eventId = "ocr", contentSpel = "#user")
    @GetMapping("/ocr")
    fun ocr(@RequestParam user: String) = "done"

    @GetMapping("/header")
    fun header() = ocr.byHeader()

    @Detect(eventId = "teapot", contentSpel = "#user")
    @GetMapping("/teapot")
    fun teapot(@RequestParam user: String) = user

    @GetMapping("/mono")
    fun mono(@RequestParam user: String) = later.mono(user, Mono.just("done"))

    @GetMapping("/suspend")
    suspend fun suspending(@RequestParam user: String) = later.suspending(user, fail = false)
}
