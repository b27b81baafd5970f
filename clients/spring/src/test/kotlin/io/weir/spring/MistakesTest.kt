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
