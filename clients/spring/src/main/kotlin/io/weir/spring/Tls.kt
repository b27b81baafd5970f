package io.weir.spring

import io.lettuce.core.SslOptions
import org.springframework.boot.ssl.SslBundles
import java.io.File
import java.security.cert.CertPathValidatorException
import java.security.cert.CertPathValidatorException.BasicReason
import java.security.cert.CertificateExpiredException
import java.security.cert.CertificateNotYetValidException
import javax.net.ssl.SSLException

/**
 * The certificates of weir.ssl. They are read for each connection, so that replaced files count from the next one on. Whom weir's
 * certificate is for is always checked.
 */
internal class Tls(private val ssl: WeirProperties.Ssl, private val bundles: SslBundles?) {
    private val files = listOfNotNull(ssl.caCerts, ssl.certfile, ssl.keyfile)
    private val isSet = files.isNotEmpty() || ssl.bundle != null

    fun options(): SslOptions {
        val bundle = ssl.bundle?.let { name -> checkNotNull(bundles) { "there are no SSL bundles" }.getBundle(name).managers }
        return SslOptions.builder().apply {
            bundle?.let { keyManager(it.keyManagerFactory).trustManager(it.trustManagerFactory) }
            ssl.caCerts?.let { trustManager(File(it)) }
            ssl.certfile?.let { keyManager(File(it), File(ssl.keyfile ?: it), null) }
        }.build()
    }

    /** What cannot work ends the start. */
    fun check(isUsed: Boolean) {
        if (isSet && !isUsed) throw Mistake("weir.ssl is set, but weir.url has no TLS", "Write it as rediss://HOST:PORT")
        if (ssl.bundle != null && files.isNotEmpty())
            throw Mistake("weir.ssl.bundle is set, and so are files", "Set the bundle alone, or the files ca-certs, certfile and keyfile")
        if (ssl.keyfile != null && ssl.certfile == null)
            throw Mistake("weir.ssl.keyfile is set, but weir.ssl.certfile is not", "Set both, or neither")
        if (isSet) runCatching { options().createSslContextBuilder().build() }.onFailure { error ->
            throw Mistake(
                "weir.ssl cannot be used (${(files + listOfNotNull(ssl.bundle)).joinToString()}): ${error.message}",
                "The files have to be PEM, and the key without a password, as `BEGIN PRIVATE KEY`: openssl pkcs8 -topk8 -nodes",
            )
        }
    }
}

/** Why there is no connection with TLS, in a few words for the log, and what to do; null: for another reason. */
internal fun tlsReason(causes: List<Throwable>): String? {
    val texts = causes.mapNotNull { it.message }
    fun says(vararg words: String) = texts.any { text -> words.any { it in text } }
    val badTime = causes.any {
        it is CertificateExpiredException || it is CertificateNotYetValidException ||
            it is CertPathValidatorException && (it.reason == BasicReason.EXPIRED || it.reason == BasicReason.NOT_YET_VALID)
    }
    return when {
        causes.none { it is SSLException } -> null
        badTime -> "its certificate is not valid now: it has expired, or is not valid yet, or a clock is wrong"
        says("unable to find valid certification path", "PKIX") ->
            "its certificate is not trusted: weir.ssl.ca-certs has to name a file with the authority that has signed it"
        says("No name matching", "No subject alternative") ->
            "its certificate is for another name: weir.url needs a host that the certificate contains"
        says("certificate_required", "handshake_failure") ->
            "it wants a client certificate: set weir.ssl.certfile and weir.ssl.keyfile"
        says("unknown_ca", "bad_certificate", "certificate_unknown", "certificate_expired") ->
            "it does not accept the client certificate of weir.ssl.certfile"
        says("not an SSL/TLS record") -> "it has no TLS on this port: write weir.url as redis://HOST:PORT, or name another port"
        else -> texts.last()
    }
}
