package io.weir.spring

import org.springframework.beans.factory.BeanFactory
import org.springframework.context.expression.BeanFactoryResolver
import org.springframework.core.DefaultParameterNameDiscoverer
import org.springframework.core.KotlinDetector
import org.springframework.expression.EvaluationException
import org.springframework.expression.ParseException
import org.springframework.expression.spel.SpelNode
import org.springframework.expression.spel.ast.CompoundExpression
import org.springframework.expression.spel.ast.FunctionReference
import org.springframework.expression.spel.ast.Indexer
import org.springframework.expression.spel.ast.InlineMap
import org.springframework.expression.spel.ast.Literal
import org.springframework.expression.spel.ast.MethodReference
import org.springframework.expression.spel.ast.Operator
import org.springframework.expression.spel.ast.Projection
import org.springframework.expression.spel.ast.PropertyOrFieldReference
import org.springframework.expression.spel.ast.Selection
import org.springframework.expression.spel.ast.VariableReference
import org.springframework.expression.spel.standard.SpelExpression
import org.springframework.expression.spel.standard.SpelExpressionParser
import org.springframework.expression.spel.support.StandardEvaluationContext
import org.springframework.util.ClassUtils
import org.springframework.web.context.request.RequestContextHolder
import org.springframework.web.context.request.ServletRequestAttributes
import java.lang.reflect.Method

/** What expressions about a method's call may name: `#arg1`, `#userId`, `#request`. */
internal class Names(method: Method) {
    /** A suspend function's last argument is the compiler's own. */
    private val count = method.parameterCount - if (KotlinDetector.isSuspendingFunction(method)) 1 else 0
    private val places: Map<String, Int> = buildMap {
        if (CurrentRequest.possible) put(REQUEST, AT_REQUEST)
        val names = DISCOVERER.getParameterNames(method)
        if (names != null) for (i in 0 until count) put(names[i], i)
        for (i in 0 until count) put("arg${i + 1}", i)
    }

    fun place(name: String): Int? = places[name]

    override fun toString() = places.keys.joinToString { "#$it" }.ifEmpty { "none" }

    companion object {
        const val REQUEST = "request"
        const val AT_REQUEST = -1
        private val DISCOVERER = DefaultParameterNameDiscoverer()
    }
}

/** An expression about the arguments of a call. What can be wrong with it is found when it is made, as far as possible. */
internal class Formula(private val text: String, private val where: String, names: Names, beans: BeanFactory) {
    private val expression: SpelExpression = parse()
    private val variables: Map<String, Int> = variables(expression.ast).associateWith { name ->
        names.place(name) ?: wrong(
            "there is no #$name. There are: $names. (Names of parameters are known if javac is called with -parameters, " +
                "kotlinc with -java-parameters, or kotlin-reflect is there.)",
        )
    }
    private val resolver = BeanFactoryResolver(beans)

    /** Whether it is made of nothing but literals, so that its value is known before any call. */
    val isConstant = isConstant(expression.ast)

    init {
        stray(expression.ast)?.toStringAST()?.let { word ->
            wrong("$word belongs to nothing: write #$word for a parameter, '$word' for the text itself")
        }
    }

    fun evaluate(args: Array<out Any?>): Any? {
        val context = StandardEvaluationContext()
        context.beanResolver = resolver
        for ((name, place) in variables) context.setVariable(name, if (place == Names.AT_REQUEST) request() else args[place])
        try {
            return expression.getValue(context)
        } catch (e: EvaluationException) {
            throw IllegalArgumentException("$where: \"$text\" has no value: ${e.message}", e)
        }
    }

    private fun request(): Any =
        CurrentRequest.get() ?: throw IllegalArgumentException("$where: \"$text\" has no value: this thread serves no HTTP request")

    private fun parse(): SpelExpression {
        if (text.isBlank()) wrong("it is blank")
        try {
            return PARSER.parseRaw(text)
        } catch (e: ParseException) {
            wrong("it is no SpEL: ${e.message}")
        }
    }

    private fun wrong(why: String): Nothing = throw Mistake("$where = \"$text\": $why")

    private companion object {
        val PARSER = SpelExpressionParser()

        /** What SpEL itself defines. */
        val OWN = setOf("this", "root")

        fun variables(node: SpelNode): Set<String> = buildSet {
            if (node is VariableReference || node is FunctionReference)
                add(node.toStringAST().removePrefix("#").substringBefore('('))
            children(node).forEach { addAll(variables(it)) }
            removeAll(OWN)
        }

        /** A property or method of nothing. In brackets and in maps a bare word is a key, or belongs to each element. */
        fun stray(node: SpelNode): SpelNode? = when (node) {
            is Indexer, is InlineMap, is Projection, is Selection -> null
            is PropertyOrFieldReference, is MethodReference -> node
            is CompoundExpression -> {
                val arguments = children(node).drop(1).filterIsInstance<MethodReference>().flatMap(::children)
                (listOf(node.getChild(0)) + arguments).firstNotNullOfOrNull(::stray)
            }
            else -> children(node).firstNotNullOfOrNull(::stray)
        }

        fun isConstant(node: SpelNode): Boolean = node is Literal || node is Operator && children(node).all(::isConstant)

        fun children(node: SpelNode) = List(node.childCount, node::getChild)
    }
}

/** The servlet request that this thread serves, where there are servlets. */
private object CurrentRequest {
    val possible = listOf(
        "jakarta.servlet.http.HttpServletRequest",
        "org.springframework.web.context.request.ServletRequestAttributes",
    ).all { ClassUtils.isPresent(it, javaClass.classLoader) }

    fun get(): Any? = (RequestContextHolder.getRequestAttributes() as? ServletRequestAttributes)?.request
}
