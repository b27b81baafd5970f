package io.weir.spring

import org.springframework.boot.context.properties.ConfigurationProperties
import java.time.Duration

/** What can be set. META-INF/spring-configuration-metadata.json tells it to IDEs. */
@ConfigurationProperties("weir")
class WeirProperties {
    var enabled: Boolean = true
    var url: String = "redis://127.0.0.1:6380"
    var deadline: Duration = Duration.ofMillis(50)
    var whenUnreachable: WhenUnreachable = WhenUnreachable.ALLOW
    var blankContent: BlankContent = BlankContent.ERROR

    /** Bound for its place in the tree; @ConditionalOnProperty reads it. */
    var advice: Advice = Advice()

    /** For an address with TLS. */
    var ssl: Ssl = Ssl()

    enum class WhenUnreachable { ALLOW, REFUSE }

    enum class BlankContent { ERROR, PASS }

    /** Paths of PEM files, with the words of the Python client; or the name of one of spring.ssl.bundle. */
    class Ssl {
        var caCerts: String? = null
        var certfile: String? = null
        var keyfile: String? = null
        var bundle: String? = null
    }

    class Advice {
        var enabled: Boolean = true
    }
}
