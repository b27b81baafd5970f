package io.weir.spring

import org.springframework.aop.support.AopUtils
import org.springframework.beans.factory.BeanFactory
import org.springframework.core.KotlinDetector
import org.springframework.core.MethodClassKey
import org.springframework.core.MethodIntrospector
import org.springframework.core.MethodParameter
import org.springframework.core.ReactiveAdapter
import org.springframework.core.ReactiveAdapterRegistry
import org.springframework.core.annotation.AnnotationUtils
import org.springframework.core.annotation.MergedAnnotation
import org.springframework.core.annotation.MergedAnnotations
import org.springframework.core.annotation.MergedAnnotations.SearchStrategy
import org.springframework.util.ClassUtils
import org.springframework.util.ReflectionUtils
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
    private val cost = detect.cost.ifBlank { null }?.let { Formula(it, "$where, cost", names, beans) }

    init {
        check(event.isNotBlank()) { "$where: the event is blank; name the one that weir's rules match" }
    }

    fun key(args: Array<out Any?>): String? {
        val value = content.evaluate(args) ?: return null
        require(value is CharSequence || HAS_TEXT[value.javaClass]) {
            "$where: the content is a ${value.javaClass.typeName}, which has no toString() of its own: each would count for itself"
        }
        return value.toString()
    }

    fun cost(args: Array<out Any?>): Long = when (val value = cost?.evaluate(args)) {
        is Long, is Int, is Short, is Byte -> (value as Number).toLong()
        else -> if (cost == null) 1 else throw IllegalArgumentException("$where: the cost is $value, and no whole number")
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
    private val classes = ConcurrentHashMap<Class<*>, Map<Method, Guard>>()
    private val methods = ConcurrentHashMap<MethodClassKey, Optional<Guard>>()

    fun of(type: Class<*>): Map<Method, Guard> = classes.computeIfAbsent(ClassUtils.getUserClass(type), ::read)

    fun of(method: Method, type: Class<*>): Guard? = methods.computeIfAbsent(MethodClassKey(method, type)) {
        Optional.ofNullable(of(type)[AopUtils.getMostSpecificMethod(method, ClassUtils.getUserClass(type))])
    }.getOrNull()

    private fun read(type: Class<*>): Map<Method, Guard> {
        if (!AnnotationUtils.isCandidateClass(type, Detect::class.java)) return emptyMap()
        val ofClass = nearest(type)
        return MethodIntrospector.selectMethods(type, MethodIntrospector.MetadataLookup { guard(type, it, ofClass) })
    }

    private fun guard(type: Class<*>, method: Method, ofClass: List<Detect>): Guard? {
        val own = nearest(method)
        val detects = own.ifEmpty { if (isCovered(method)) ofClass else emptyList() }
        if (detects.isEmpty()) return null
        val where = "${type.name}.${method.name}"
        checkReachable(method, where)
        val names = Names(method)
        return Guard(detects.map { Check(it, where, names, beans) }, shape(method, where))
    }

    private fun isCovered(method: Method) =
        Modifier.isPublic(method.modifiers) && !Modifier.isStatic(method.modifiers) && !ReflectionUtils.isObjectMethod(method)

    /** An annotation that has no effect is worse than none. A proxy can stand before neither of these. */
    private fun checkReachable(method: Method, where: String) {
        val obstacle = listOf("private" to Modifier.PRIVATE, "static" to Modifier.STATIC, "final" to Modifier.FINAL)
            .firstOrNull { (_, bit) -> method.modifiers and bit != 0 && !Proxy.isProxyClass(method.declaringClass) }
        check(obstacle == null) {
            "$where: @Detect has no effect on a method that is ${obstacle?.first}. In Kotlin `open` helps, or the compiler's " +
                "plugin kotlin-spring, which opens what is a @Component"
        }
    }

    private fun shape(method: Method, where: String): Shape {
        if (KotlinDetector.isSuspendingFunction(method)) {
            check(SUSPENDING) { "$where: @Detect on a suspend function needs kotlinx-coroutines-reactor and kotlin-reflect" }
            val returned = REACTIVE.getAdapter(MethodParameter(method, -1).parameterType)
            return Shape.Later(null, returned != null && returned.isMultiValue)
        }
        val adapter = REACTIVE.getAdapter(method.returnType) ?: return Shape.Plain
        return Shape.Later(adapter, adapter.isMultiValue)
    }

    /** A method's own win over those of what it overrides; the same for classes. */
    private fun nearest(element: AnnotatedElement): List<Detect> {
        val found = MergedAnnotations.from(element, SearchStrategy.TYPE_HIERARCHY).stream(Detect::class.java).toList()
        val first = found.minOfOrNull { it.aggregateIndex }
        return found.filter { it.aggregateIndex == first }.map(MergedAnnotation<Detect>::synthesize)
    }

    private companion object {
        val REACTIVE: ReactiveAdapterRegistry = ReactiveAdapterRegistry.getSharedInstance()
        val SUSPENDING = KotlinDetector.isKotlinReflectPresent() &&
            ClassUtils.isPresent("kotlinx.coroutines.reactor.MonoKt", Guards::class.java.classLoader)
    }
}
