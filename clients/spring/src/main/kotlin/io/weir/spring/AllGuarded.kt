package io.weir.spring

import org.springframework.aop.framework.Advised
import org.springframework.aop.framework.AopProxyUtils
import org.springframework.beans.factory.SmartInitializingSingleton
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory

/**
 * Looks at all beans once they are made: one with the annotation that nothing stands before would let everything through, and
 * nobody would know. Beans that others have drawn along early are such, and those that hide behind somebody else's proxy.
 */
internal class AllGuarded(private val beans: ConfigurableListableBeanFactory, private val advisor: DetectAdvisor) :
    SmartInitializingSingleton {
    override fun afterSingletonsInstantiated() {
        for (name in beans.singletonNames) beans.getSingleton(name)?.let { check(name, it) }
    }

    private fun check(name: String, bean: Any) {
        val type = AopProxyUtils.ultimateTargetClass(bean)
        if (!wanted(type)) return
        if (!isGuarded(bean)) throw Mistake(
            "${type.name} (the bean $name) has @Detect, but nothing stands before its methods: it was made before Spring could see to " +
                "that, or it hides behind a proxy without its class",
            "Let the BeanPostProcessor or BeanFactoryPostProcessor that needs it take an ObjectProvider, and leave out the order of " +
                "@EnableAsync",
        )
        BeforeAsync.sort(bean)
    }

    /** A class that cannot be read (one of its own may be missing) is nobody's with the annotation. */
    private fun wanted(type: Class<*>): Boolean = try {
        advisor.classFilter.matches(type)
    } catch (e: Mistake) {
        throw e
    } catch (e: IllegalStateException) {
        false
    }

    private fun isGuarded(bean: Any?): Boolean = bean is Advised &&
        (bean.advisors.any { it is DetectAdvisor } || bean.targetSource.isStatic && isGuarded(bean.targetSource.target))
}
