package io.weir.spring

import io.micrometer.core.instrument.MeterRegistry
import io.weir.spring.WeirProperties.WhenUnreachable
import org.springframework.aop.config.AopConfigUtils
import org.springframework.beans.factory.BeanFactory
import org.springframework.beans.factory.ObjectProvider
import org.springframework.beans.factory.config.BeanDefinition
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory
import org.springframework.beans.factory.support.BeanDefinitionRegistry
import org.springframework.beans.factory.support.RootBeanDefinition
import org.springframework.boot.autoconfigure.AutoConfiguration
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication
import org.springframework.boot.context.properties.EnableConfigurationProperties
import org.springframework.boot.ssl.SslBundles
import org.springframework.context.annotation.Bean
import org.springframework.context.annotation.Configuration
import org.springframework.context.annotation.Import
import org.springframework.context.annotation.ImportBeanDefinitionRegistrar
import org.springframework.context.annotation.Lazy
import org.springframework.context.annotation.Role
import org.springframework.core.type.AnnotationMetadata
import org.springframework.web.bind.annotation.RestControllerAdvice
import java.time.Duration

/** What an application gets that has the starter on its class path. */
@AutoConfiguration
@EnableConfigurationProperties(WeirProperties::class)
internal class WeirAutoConfiguration {
    /** It waits for its connection, and that is to be while the application starts, even if the others are lazy. */
    @Bean
    @Lazy(false)
    @ConditionalOnMissingBean
    fun detectManager(
        properties: WeirProperties,
        counter: ObjectProvider<DecisionCounter>,
        advisor: ObjectProvider<DetectAdvisor>,
        bundles: ObjectProvider<SslBundles>,
    ): DetectManager {
        if (properties.deadline <= Duration.ZERO)
            throw Mistake("weir.deadline is ${properties.deadline.toMillis()}ms: no time for an answer", "Set it above 0, as 50ms")
        // Who builds ahead of time has decided then. And a `yes` binds to true, but is none for a condition.
        if (properties.enabled && advisor.getIfAvailable() == null) throw Mistake(
            "weir.enabled is true, but @Detect is off",
            "Write true, and nothing else for it; and what is built ahead of time, build with it, too",
        )
        val meanwhile = if (properties.whenUnreachable == WhenUnreachable.ALLOW) "let through" else "refused"
        val tls = Tls(properties.ssl, bundles.getIfAvailable())
        val link = if (properties.enabled) Link(properties.url, meanwhile, tls).apply { open() } else null
        return DetectManager(Asker(link, properties, counter.getIfAvailable { DecisionCounter { _, _ -> } }), properties)
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty("weir.enabled", havingValue = "true", matchIfMissing = true)
    @Import(ProxyCreator::class)
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    class Annotations {
        @Bean
        @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
        fun detectAdvisor(beans: BeanFactory) = DetectAdvisor(Guards(beans)) { beans.getBean(DetectManager::class.java) }

        @Bean
        @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
        fun allGuarded(beans: ConfigurableListableBeanFactory, advisor: DetectAdvisor) = AllGuarded(beans, advisor)
    }

    /** Spring Boot registers the first, too, unless spring.aop.auto is false. */
    class ProxyCreator : ImportBeanDefinitionRegistrar {
        override fun registerBeanDefinitions(metadata: AnnotationMetadata, registry: BeanDefinitionRegistry) {
            AopConfigUtils.registerAutoProxyCreatorIfNecessary(registry)
            val definition = RootBeanDefinition(BeforeAsync::class.java).apply { role = BeanDefinition.ROLE_INFRASTRUCTURE }
            registry.registerBeanDefinition(BeforeAsync::class.java.name, definition)
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry::class)
    class Metrics {
        @Bean
        fun weirDecisionCounter(registries: ObjectProvider<MeterRegistry>): DecisionCounter =
            MicrometerCounter(registries.getIfUnique()?.let(::listOf) ?: registries.toList())
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication
    @ConditionalOnClass(RestControllerAdvice::class)
    @ConditionalOnProperty("weir.advice.enabled", havingValue = "true", matchIfMissing = true)
    class Web {
        @Bean
        @ConditionalOnMissingBean
        fun tooFrequentAdvice() = TooFrequentAdvice()
    }
}
