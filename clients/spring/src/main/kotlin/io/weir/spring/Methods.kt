package io.weir.spring

import org.springframework.aop.support.AopUtils
import org.springframework.core.ResolvableType
import org.springframework.util.ClassUtils
import java.lang.reflect.Method

/** The class, and all that it extends and implements. */
internal fun ancestry(type: Class<*>): Set<Class<*>> =
    setOf(type) + (listOfNotNull(type.superclass) + type.interfaces).flatMap(::ancestry)

/**
 * What the call of a method ends in. From the method of a generic base to what overrides it there is a bridge, but Kotlin builds
 * none in an interface: there the two have only their parameters in common, as the interface says what they are.
 */
internal fun actual(method: Method, type: Class<*>): Method {
    val found = AopUtils.getMostSpecificMethod(method, type)
    if (!type.isInterface || found.genericParameterTypes.contentEquals(found.parameterTypes)) return found
    val wanted = found.parameterTypes.mapIndexed { i, erased -> boxed(part(found, i, type).resolve(erased)) }
    // What is an `Int` for the base, too, is a primitive here.
    val overriding = type.methods.filter { it.name == found.name && it.parameterTypes.map(::boxed) == wanted }
        .maxByOrNull { one -> one.parameterTypes.count { it.isPrimitive } }
    return if (overriding == null) found else AopUtils.getMostSpecificMethod(overriding, type)
}

private fun boxed(type: Class<*>): Class<*> = ClassUtils.resolvePrimitiveIfNecessary(type)

/**
 * The method of a generic base that a method of Kotlin overrides, if there is a value class among what it takes or gives: it is
 * compiled to another name then, with other parameters, and Spring does not know that the two are one.
 */
internal fun baseOfAnotherName(method: Method, type: Class<*>): Method? {
    if (MANGLED !in method.name) return null
    return (ancestry(method.declaringClass) - method.declaringClass).flatMap { it.declaredMethods.asList() }.firstOrNull { base ->
        base.name == method.name.substringBefore(MANGLED) && base.parameterCount == method.parameterCount &&
            (-1 until base.parameterCount).any { holdsValueClass(part(base, it, type)) }
    }
}

/** A parameter, or (-1) the result, as [type] knows it. */
private fun part(method: Method, index: Int, type: Class<*>): ResolvableType =
    if (index < 0) ResolvableType.forMethodReturnType(method, type) else ResolvableType.forMethodParameter(method, index, type)

/** A suspend function has what it gives within its last parameter. */
private fun holdsValueClass(type: ResolvableType): Boolean = isValueClass(type) || type.generics.any(::isValueClass)

private fun isValueClass(type: ResolvableType): Boolean =
    type.resolve()?.declaredMethods.orEmpty().any { it.name == "unbox-impl" }

/** What is between a name and what the compiler adds to it. */
private const val MANGLED = '-'
