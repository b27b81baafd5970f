package io.weir.spring

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.assertThrows
import org.springframework.beans.factory.annotation.Autowired
import java.io.IOException
import java.time.Duration
import java.util.Optional
import java.util.concurrent.CompletableFuture

class DetectTest(
    @Autowired private val ocr: Ocr,
    @Autowired private val java: JavaOcr,
    @Autowired private val covered: Covered,
    @Autowired private val party: Contract,
    @Autowired private val composed: Composed,
    @Autowired private val tenant: Tenant,
    @Autowired private val manager: DetectManager,
) : InApp() {
    @Test
    fun `content by position, name, property and bean`() {
        val (a, b, c, d) = List(4) { someone() }
        val calls = listOf<() -> String>({ ocr.byPosition(a, "image") }, { ocr.byName(User(b)) }, { ocr.ownRequest(c) }, {
            tenant.id = d
            ocr.byBean()
        })
        for (call in calls) {
            call()
            refused(call)
        }
    }

    @Test
    fun `a refusal says which limit, and when to come back`() {
        val user = someone()
        ocr.byPosition(user, "image")
        val refusal = refused { ocr.byPosition(user, "image") }
        assertEquals(listOf("one", "one", "day", 1L, 0L), refusal.run { listOf(event, rule, limit, max, remaining) })
        assertTrue(refusal.retryAfter!! in Duration.ofMillis(1)..Duration.ofHours(24))
        assertTrue(Regex("one refused: rule one, limit day of 1; try again in \\d+ s").matches(refusal.message!!), refusal.message)
    }

    @Test
    fun `an annotated class has all its public methods covered, and a method's own annotation wins`() {
        val user = someone()
        covered.plain(user)
        refused { covered.plain(user) }
        repeat(3) { covered.own(user) }
        assertEquals("ocr", refused { covered.own(user) }.event)
        assertFalse(covered.toString().isEmpty())
        assertEquals("done", covered.unknown())
    }

    @Test
    fun `weir is asked before a cache is`() {
        val user = someone()
        ocr.cached(user)
        refused { ocr.cached(user) }
    }

    @Test
    fun `annotations of an interface and composed ones count`() {
        val (a, b) = List(2) { someone() }
        for (call in listOf({ party.agreed(a) }, { composed.once(b) })) {
            call()
            refused(call)
        }
    }

    @Test
    fun `Java - names, costs`() {
        val user = someone()
        java.submit(user, listOf("a", "b"))
        val refusal = refused { java.submit(user, listOf("c", "d")) }
        assertEquals(1, refusal.remaining)
        java.submit(user, listOf("e"))
    }

    @Test
    fun `of several events all pass or none is charged`() {
        val (user, image) = List(2) { someone() }
        java.both(user, image)
        repeat(5) { assertEquals("one", refused { java.both(user, image) }.event) }
        repeat(2) { java.both(user, someone()) }
        val unused = someone()
        assertEquals("ocr", refused { java.both(user, unused) }.event)
        java.both(someone(), unused)
    }

    @Test
    fun `a cost is a whole number`() {
        val user = someone()
        for (cost in listOf(null, "2", 2.5, -1, 9007199254740992L)) assertThrows<IllegalArgumentException> { ocr.costly(user, cost) }
        for (cost in listOf(0, 3L)) ocr.costly(user, cost)
        assertEquals(0, refused { ocr.costly(user, 1) }.remaining)
    }

    @Test
    fun `costs in other units - all pass or none is charged`() {
        val user = someone()
        ocr.prompt(user, 4999999999L)
        val refusal = refused { ocr.prompt(user, 2) }
        assertEquals(listOf("llm", "tokens", 5000000000L, 1L, "tokens"), refusal.run { listOf(rule, limit, max, remaining, unit) })
        assertTrue("limit tokens of 5000000000 tokens; try again" in refusal.message!!, refusal.message)
        java.prompt(user, "x")
        assertEquals("tokens", refused { java.prompt(user, "x") }.unit)
        assertTrue(manager.match("llm", user, cost = 98).allowed)
        assertEquals("calls" to "requests", manager.match("llm", user).run { limit to unit })
    }

    @Test
    fun `costs in other units of a composed annotation`() {
        val user = someone()
        composed.prompt(user)
        assertEquals("tokens", refused { composed.prompt(user) }.limit)
    }

    @Test
    fun `a cost in another unit is a whole number`() {
        val user = someone()
        for (tokens in listOf(null, "2", 2.5, -1, 9007199254740992L)) {
            val error = assertThrows<IllegalArgumentException> { ocr.prompt(user, tokens) }
            assertTrue("Ocr.prompt" in error.message!! && "the cost in tokens is $tokens" in error.message!!, error.message)
        }
        assertTrue(manager.match("llm", user, cost = 100, costs = mapOf("tokens" to 5000000000L)).allowed)
    }

    @Test
    fun `refundOnException gives back all units`() {
        val user = someone()
        repeat(3) { assertThrows<IOException> { ocr.failingPrompt(user, 5000000000L) } }
        assertTrue(manager.match("llm", user, cost = 100, costs = mapOf("tokens" to 5000000000L)).allowed)
    }

    @Test
    fun `an Optional counts as what is in it`() {
        val user = someone()
        ocr.byAny(Optional.of(user))
        assertThrows<IllegalArgumentException> { ocr.byAny(Optional.empty<String>()) }
        ocr.byWords(mapOf("key" to user), listOf(1))
        refused { manager.matchExceptionally("one", "${user}1") }
    }

    @Test
    fun `null and blank content is an error that says so`() {
        for ((content, word) in listOf(null to "null", "" to "blank", " \t" to "blank")) {
            val error = assertThrows<IllegalArgumentException> { ocr.byName(User(content)) }
            assertTrue("Ocr.byName" in error.message!! && "the content is $word" in error.message!!, error.message)
        }
    }

    @Test
    fun `content that is no text is an error, since each would count for itself`() {
        ocr.byAny(42)
        for (content in listOf(User("x"), arrayOf("x"))) {
            val error = assertThrows<IllegalArgumentException> { ocr.byAny(content) }
            assertTrue("no toString() of its own" in error.message!!, error.message)
        }
    }

    @Test
    fun `an expression without a value is an error that names the method`() {
        val error = CompletableFuture.supplyAsync { assertThrows<IllegalArgumentException> { ocr.byHeader() } }.get()
        assertTrue("io.weir.spring.Ocr.byHeader" in error.message!! && "no HTTP request" in error.message!!, error.message)
    }

    @Test
    fun `refundOnException gives back, and only what it says`() {
        val user = someone()
        repeat(3) { assertThrows<IOException> { ocr.failing(user) } }
        assertEquals("ocr", refused { ocr.failing(user) }.event)
        assertTrue(manager.match("one", user).allowed)
    }
}
