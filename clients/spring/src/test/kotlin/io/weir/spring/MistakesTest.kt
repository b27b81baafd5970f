package io.weir.spring

import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.DynamicTest.dynamicTest
import org.junit.jupiter.api.TestFactory
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import java.util.concurrent.CompletableFuture
import kotlin.reflect.KClass

private const val SOME = "#arg1"

open class BlankEvent {
    @Detect(eventId = " ", contentSpel = SOME)
    open fun submit(user: String) = user
}

open class BlankContent {
    @Detect(eventId = "ocr", contentSpel = "")
    open fun submit(user: String) = user
}

open class BadContent {
    @Detect(eventId = "ocr", contentSpel = "#user.")
    open fun submit(user: String) = user
}

open class BadCost {
    @Detect(eventId = "ocr", contentSpel = SOME, cost = "1 +")
    open fun submit(user: String) = user
}

open class UnknownName {
    @Detect(eventId = "ocr", contentSpel = "#usr.id")
    open fun submit(user: String) = user
}

open class UnknownPosition {
    @Detect(eventId = "ocr", contentSpel = "#arg2")
    open suspend fun submit(user: String) = user
}

open class NoHash {
    @Detect(eventId = "ocr", contentSpel = "user.id")
    open fun submit(user: String) = user
}

open class Final {
    @Detect(eventId = "ocr", contentSpel = SOME)
    fun submit(user: String) = user
}

@Detect(eventId = "ocr", contentSpel = SOME)
open class FinalInCovered {
    fun submit(user: String) = user
}

@Detect(eventId = "ocr", contentSpel = SOME)
open class NothingToCount {
    open fun submit() = "done"
}

open class NoHashBelow {
    @Detect(eventId = "ocr", contentSpel = "'u:'.concat(user)")
    open fun submit(user: String) = user
}

open class NegativeCost {
    @Detect(eventId = "ocr", contentSpel = SOME, cost = "1 - 2")
    open fun submit(user: String) = user
}

open class TextCost {
    @Detect(eventId = "ocr", contentSpel = SOME, cost = "'2'")
    open fun submit(user: String) = user
}

open class BlankUnit {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost(" ", "1")])
    open fun submit(user: String) = user
}

open class RequestsUnit {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("requests", "1")])
    open fun submit(user: String) = user
}

open class UnitTwice {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("tokens", "1"), Cost("images", "1"), Cost("tokens", "2")])
    open fun submit(user: String) = user
}

open class TooManyUnits {
    @Detect(
        eventId = "ocr",
        contentSpel = SOME,
        costs = [
            Cost("u1", "1"), Cost("u2", "1"), Cost("u3", "1"), Cost("u4", "1"), Cost("u5", "1"), Cost("u6", "1"), Cost("u7", "1"), Cost("u8", "1"), Cost("u9", "1"),
            Cost("u10", "1"), Cost("u11", "1"), Cost("u12", "1"), Cost("u13", "1"), Cost("u14", "1"), Cost("u15", "1"), Cost("u16", "1"), Cost("u17", "1"),
        ],
    )
    open fun submit(user: String) = user
}

open class TextAmount {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("tokens", "'2'")])
    open fun submit(user: String) = user
}

open class NegativeAmount {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("tokens", "1 - 2")])
    open fun submit(user: String) = user
}

open class BlankAmount {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("tokens", " ")])
    open fun submit(user: String) = user
}

open class UnknownNameInAmount {
    @Detect(eventId = "ocr", contentSpel = SOME, costs = [Cost("tokens", "#text.length()")])
    open suspend fun submit(user: String) = user
}

class OwnFuture : CompletableFuture<String>()

open class OwnKindOfFuture {
    @Detect(eventId = "ocr", contentSpel = SOME)
    open fun submit(user: String) = OwnFuture()
}

interface OneSays {
    @Detect(eventId = "ocr", contentSpel = SOME)
    fun submit(user: String): String
}

interface OtherSays {
    @Detect(eventId = "one", contentSpel = SOME)
    fun submit(user: String): String
}

open class TwoSay : OneSays, OtherSays {
    override fun submit(user: String) = user
}

open class Private {
    @Detect(eventId = "ocr", contentSpel = SOME)
    private fun submit(user: String) = user
}

@JvmInline
value class Id(val text: String)

interface Submitted<T> {
    fun submit(user: T): String
}

interface Submitting<R> {
    @Detect(eventId = "ocr", contentSpel = SOME)
    suspend fun submit(user: String): R
}

/** The compiler makes it a method of another name, that takes a String, and a bridge to it that Spring does not know as one. */
open class ValueClass : Submitted<Id> {
    @Detect(eventId = "ocr", contentSpel = SOME)
    override fun submit(user: Id) = user.text
}

open class ValueClassGiven : Submitting<Result<String>> {
    override suspend fun submit(user: String) = Result.success(user)
}

/** What is wrong with an annotation ends the start of the application, with the class and the method in the message. */
class MistakesTest {
    private val runner = ApplicationContextRunner().withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java))
        .withPropertyValues("weir.url=${Weir.shared.url}")

    @TestFactory
    fun mistakes() = listOf(
        mistake(BlankEvent::class, "the event is blank"),
        mistake(BlankContent::class, "contentSpel = \"\": it is blank"),
        mistake(BadContent::class, "contentSpel = \"#user.\": it is no SpEL"),
        mistake(BadCost::class, "cost = \"1 +\": it is no SpEL"),
        mistake(UnknownName::class, "there is no #usr. There are: #request, #user, #arg1."),
        mistake(UnknownPosition::class, "there is no #arg2. There are: #request, #user, #arg1."),
        mistake(NoHash::class, "write #user for a parameter, 'user' for the text itself"),
        mistake(Final::class, "no effect on a method that is final"),
        mistake(FinalInCovered::class, "no effect on a method that is final"),
        mistake(NothingToCount::class, "there is no #arg1. There are: #request."),
        mistake(NoHashBelow::class, "write #user for a parameter"),
        mistake(NegativeCost::class, "the cost is -1; it is a whole number from 0"),
        mistake(TextCost::class, "the cost is 2, and no whole number"),
        mistake(BlankUnit::class, "the unit ' ' is not a name of letters"),
        mistake(RequestsUnit::class, "the cost in requests is `cost`, and not one of `costs`"),
        mistake(UnitTwice::class, "costs: the unit tokens is given twice"),
        mistake(TooManyUnits::class, "costs in 17 units; at most 16 are allowed besides requests"),
        mistake(TextAmount::class, "the cost in tokens is 2, and no whole number"),
        mistake(NegativeAmount::class, "the cost in tokens is -1; it is a whole number from 0"),
        mistake(BlankAmount::class, "costs, amount of 'tokens' = \" \": it is blank"),
        mistake(UnknownNameInAmount::class, "costs, amount of 'tokens' = \"#text.length()\": there is no #text."),
        mistake(OwnKindOfFuture::class, "OwnFuture: it can only give a plain CompletionStage"),
        mistake(TwoSay::class, "OneSays and io.weir.spring.OtherSays say @Detect"),
        mistake(Private::class, "no effect on a method that is private"),
        mistake(StaticOcr::class, "no effect on a method that is static"),
        mistake(ValueClass::class, "calls by way of io.weir.spring.Submitted, since there is a value class"),
        mistake(ValueClassGiven::class, "calls by way of io.weir.spring.Submitting, since there is a value class"),
    )

    private fun mistake(type: KClass<*>, expected: String) = dynamicTest("${type.simpleName} is found when the bean is made") {
        runner.withBean("bean", type.java).run { context ->
            val messages = generateSequence(context.startupFailure) { it.cause }.joinToString { it.message.orEmpty() }
            assertTrue("${type.qualifiedName}.submit" in messages && expected in messages, messages)
        }
    }
}
