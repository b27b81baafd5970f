package io.weir.spring

import org.slf4j.LoggerFactory
import org.springframework.beans.factory.BeanFactory
import org.springframework.core.KotlinDetector
import org.springframework.core.MethodClassKey
import org.springframework.core.MethodParameter
import org.springframework.core.ReactiveAdapter
import org.springframework.core.ReactiveAdapterRegistry
import org.springframework.core.ResolvableType
import org.springframework.core.annotation.MergedAnnotations
import org.springframework.util.ClassUtils
import org.springframework.util.ReflectionUtils
import reactor.core.publisher.Mono
import java.lang.reflect.AnnotatedElement
import java.lang.reflect.Method
import java.lang.reflect.Modifier
import java.lang.reflect.Proxy
import java.util.Optional
import java.util.concurrent.ConcurrentHashMap
import kotlin.jvm.optionals.getOrNull

/** What one annotation wants to know of a call. */
internal class Check(detect: Detect, method: String, names: Names, beans: BeanFactory) {
    val event: String = detect.eventId
    val refundOnException: Boolean = detect.refundOnException
    val where = "$method, @Detect(eventId = \"$event\")"
    private val content = Formula(detect.contentSpel, "$where, contentSpel", names, beans)
    private val cost = detect.cost.ifBlank { null }?.let { Amount(Formula(it, "$where, cost", names, beans), where, "cost") }
    private val costs = detect.costs.map { it.unit to amount(it, names, beans) }

    init {
        if (event.isBlank()) throw Mistake("$where: the event is blank", "Name the one that weir's rules match")
        val units = costs.map { it.first }
        orMistake { checkUnits(units, where) }
        units.firstOrNull { unit -> units.count { it == unit } > 1 }?.let { throw Mistake("$where, costs: the unit $it is given twice") }
    }

    private fun amount(cost: Cost, names: Names, beans: BeanFactory) =
        Amount(Formula(cost.amount, "$where, costs, amount of '${cost.unit}'", names, beans), where, "cost in ${cost.unit}")

    fun key(args: Array<out Any?>): String? {
        val value = content.evaluate(args).let { if (it is Optional<*>) it.getOrNull() else it } ?: return null
        require(value is CharSequence || HAS_TEXT[value.javaClass]) {
            "$where: the content is a ${value.javaClass.typeName}, which has no toString() of its own: each would count for itself"
        }
        return value.toString()
    }

    fun cost(args: Array<out Any?>): Long = cost?.of(args) ?: 1

    fun costs(args: Array<out Any?>): Costs = costs.associate { (unit, amount) -> unit to amount.of(args) }
}

/** What a call costs in one unit. One that is constant is checked when it is made. */
private class Amount(private val formula: Formula, private val where: String, private val what: String) {
    init {
        if (formula.isConstant) orMistake { of(emptyArray()) }
    }

    fun of(args: Array<out Any?>): Long = when (val value = formula.evaluate(args)) {
        is Long, is Int, is Short, is Byte -> (value as Number).toLong().also { checkCost(it, where, what) }
        else -> throw IllegalArgumentException("$where: the $what is $value, and no whole number")
    }
}

/** What is an error at a call is a mistake of the application if it is known before any call. */
private fun orMistake(check: () -> Unit) = try {
    check()
} catch (e: IllegalArgumentException) {
    throw Mistake(e.message.orEmpty())
}

/** The costs that weir takes. */
internal fun checkCost(cost: Long, where: String, what: String = "cost") =
    require(cost in 0..9007199254740991) { "$where: the $what is $cost; it is a whole number from 0 to 9007199254740991" }

/** Costs in other units than requests. */
typealias Costs = Map<String, Long>

private val UNIT = Regex("[A-Za-z0-9_.-]{1,50}")

internal fun checkCosts(costs: Costs, where: String) {
    checkUnits(costs.keys, where)
    for ((unit, amount) in costs) checkCost(amount, where, "cost in $unit")
}

internal fun checkUnits(units: Collection<String>, where: String) {
    require(units.size <= 16) { "$where: costs in ${units.size} units; at most 16 are allowed besides requests" }
    for (unit in units) {
        require(unit != REQUESTS) { "$where: the cost in requests is `cost`, and not one of `costs`" }
        require(UNIT.matches(unit)) { "$where: the unit '$unit' is not a name of letters, digits, _, - and ., 1 to 50 bytes" }
    }
}

/** Whether equal objects of a class are equal texts, as far as one can tell. */
private val HAS_TEXT = object : ClassValue<Boolean>() {
    override fun computeValue(type: Class<*>) = !type.isArray && type.getMethod("toString").declaringClass != Any::class.java
}

/** How a method gives its result. */
internal sealed interface Shape {
    data object Plain : Shape

    /** [adapter] null: a suspend function, which Spring's proxies show to interceptors as a publisher. */
    class Later(val adapter: ReactiveAdapter?, val many: Boolean) : Shape
}

/** A method's annotations, ready for its calls. */
internal class Guard(val checks: List<Check>, val shape: Shape)

/** Which methods are guarded. Reading a class finds all that is wrong with its annotations. */
internal class Guards(private val beans: BeanFactory) {
    private val log = LoggerFactory.getLogger(Guards::class.java)
    private val classes = ConcurrentHashMap<Class<*>, Map<Method, Guard>>()
    private val methods = ConcurrentHashMap<MethodClassKey, Optional<Guard>>()

    fun any(type: Class<*>) = faces(type).any { of(it).isNotEmpty() }

    /** Both ways to a guard, reading and calling, know a method by what the call of it ends in: not by a bridge. */
    fun of(method: Method, type: Class<*>): Guard? = methods.computeIfAbsent(MethodClassKey(method, type)) {
        Optional.ofNullable(faces(type).firstNotNullOfOrNull { of(it)[actual(method, it)] })
    }.getOrNull()

    private fun of(face: Class<*>): Map<Method, Guard> = classes.computeIfAbsent(face, ::read)

    /** Where the methods of an object are written down. A proxy of the JDK has nothing but interfaces. */
    private fun faces(type: Class<*>): List<Class<*>> =
        if (Proxy.isProxyClass(type)) type.interfaces.toList() else listOf(ClassUtils.getUserClass(type))

    private fun read(type: Class<*>): Map<Method, Guard> {
        val types = ancestry(type)
        val methods = types.flatMap { ReflectionUtils.getDeclaredMethods(it).toList() }.distinct()
            .filter(ReflectionUtils.USER_DECLARED_METHODS::matches)
        val ofClass = types.map { Said(it, it) }
        if ((ofClass + methods.map { Said(it, it.declaringClass) }).all { it.detects.isEmpty() }) return emptyMap()
        val covering = nearest(ofClass, type.name)
        val guards = methods.groupBy { actual(it, type) }
            .mapNotNull { (method, family) -> guard(type, method, family, covering)?.let { method to it } }.toMap()
        for (method in methods) baseOfAnotherName(method, type)?.let { base -> checkUnguarded(method, base, type, guards) }
        return guards
    }

    /** @param family the method, and all that it overrides or implements */
    private fun guard(type: Class<*>, method: Method, family: List<Method>, covering: List<Detect>): Guard? {
        val where = "${type.name}.${method.name}"
        val own = nearest(family.map { Said(it, it.declaringClass) }, where)
        val detects = own.ifEmpty { if (covering.isNotEmpty() && isCovered(method, type)) covering else emptyList() }
        if (detects.isEmpty()) return null
        checkReachable(method, where)
        val names = Names(method)
        return Guard(detects.map { Check(it, where, names, beans) }, shape(method, type, where))
    }

    private fun isCovered(method: Method, type: Class<*>): Boolean {
        val modifiers = method.modifiers
        if (!Modifier.isPublic(modifiers) || Modifier.isStatic(modifiers) || ReflectionUtils.isObjectMethod(method)) return false
        val foreign = Modifier.isFinal(modifiers) && method.declaringClass != type
        if (foreign) log.warn("{}: its @Detect does not cover the inherited {}, which is final", type.name, method.name)
        return !foreign
    }

    /** An annotation that has no effect is worse than none. A proxy can stand before neither of these. */
    private fun checkReachable(method: Method, where: String) {
        val obstacle = listOf("private" to Modifier.PRIVATE, "static" to Modifier.STATIC, "final" to Modifier.FINAL)
            .firstOrNull { (_, bit) -> method.modifiers and bit != 0 } ?: return
        throw Mistake(
            "$where: @Detect has no effect on a method that is ${obstacle.first}",
            "In Kotlin `open` helps, or the compiler's plugin kotlin-spring, which opens what is a @Component",
        )
    }

    /** The same for what is two methods for Spring, see [baseOfAnotherName]: who calls one would pass by the guard of the other. */
    private fun checkUnguarded(method: Method, base: Method, type: Class<*>, guards: Map<Method, Guard>) {
        if (listOf(method, base).none { actual(it, type) in guards }) return
        throw Mistake(
            "${type.name}.${base.name}: @Detect cannot hold both for it and for calls by way of ${base.declaringClass.name}, " +
                "since there is a value class in place of a type parameter",
            "Take another class there, or ask with DetectManager in the method",
        )
    }

    private fun shape(method: Method, type: Class<*>, where: String): Shape {
        if (KotlinDetector.isSuspendingFunction(method)) {
            if (!SUSPENDING)
                throw Mistake("$where: @Detect on a suspend function needs kotlinx-coroutines-reactor and kotlin-reflect")
            val returned = REACTIVE.getAdapter(MethodParameter(method, -1).parameterType)
            return Shape.Later(null, returned != null && returned.isMultiValue)
        }
        val returned = ResolvableType.forMethodReturnType(method, type).resolve(method.returnType)
        val adapter = REACTIVE.getAdapter(returned) ?: return Shape.Plain
        val given = adapter.fromPublisher(Mono.empty<Any>())
        if (!returned.isInstance(given)) throw Mistake(
            "$where: @Detect cannot stand before a method that returns a ${returned.name}: it can only give a plain " +
                adapter.reactiveType.simpleName,
            "Declare that as its type, or ask with DetectManager in the method",
        )
        return Shape.Later(adapter, adapter.isMultiValue)
    }

    /** What is said on one class or method alone. */
    private class Said(element: AnnotatedElement, val by: Class<*>) {
        val detects: List<Detect> = MergedAnnotations.from(element).stream(Detect::class.java).map { it.synthesize() }.toList()
    }

    /** A method's own win over those of what it overrides; the same for classes. */
    private fun nearest(all: List<Said>, where: String): List<Detect> {
        val said = all.filter { it.detects.isNotEmpty() }
        val nearest = said.filter { one -> said.none { it !== one && one.by.isAssignableFrom(it.by) } }
        if (nearest.size > 1) throw Mistake(
            "$where: both ${nearest.joinToString(" and ") { it.by.name }} say @Detect for it",
            "Say on ${where.substringAfterLast('.')} itself which one holds, or write both there",
        )
        return nearest.firstOrNull()?.detects.orEmpty()
    }

    private companion object {
        val REACTIVE: ReactiveAdapterRegistry = ReactiveAdapterRegistry.getSharedInstance()
        val SUSPENDING = KotlinDetector.isKotlinReflectPresent() &&
            ClassUtils.isPresent("kotlinx.coroutines.reactor.MonoKt", Guards::class.java.classLoader)
    }
}
