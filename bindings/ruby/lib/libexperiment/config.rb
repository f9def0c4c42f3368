# frozen_string_literal: true

module AmplitudeExperiment
  # The settings of a client, which copies them when it is made. Times are milliseconds.
  class RemoteEvaluationConfig
    # Amplitude's data centre in the US, and the default.
    DEFAULT_SERVER_URL = 'https://api.lab.amplitude.com'

    # For those times that may be without one.
    NO_LIMIT = Native::NO_LIMIT

    # Every setting with its default. nil leaves it to the library, whose default the comment tells.
    DEFAULTS = {
      # Whether everything is logged; sets the logger's level to DEBUG, as the vendor's gem does.
      debug: false,
      # A Logger, or what quacks like one; nil: standard output, errors only.
      logger: nil,
      # http(s)://host[:port][/base/path]; another than the default wins over the zone.
      server_url: DEFAULT_SERVER_URL,
      # "US" or "EU".
      server_zone: 'US',
      # Accepted, as the vendor has it, but without effect: fetch_timeout_millis bounds connecting as well.
      connect_timeout_millis: 60_000,
      # What the first attempt may take from its connection to the last byte.
      fetch_timeout_millis: 10_000,
      # What each attempt may wait for a connection, or NO_LIMIT; nil: the attempt's own timeout.
      fetch_pool_acquire_timeout_millis: nil,
      # Attempts after the first. While it is 0, fetch_v2 answers retryable errors by no variants.
      fetch_retries: 0,
      # The wait before the second attempt.
      fetch_retry_backoff_min_millis: 500,
      # The longest wait between two attempts.
      fetch_retry_backoff_max_millis: 10_000,
      # What each wait is multiplied by for the next.
      fetch_retry_backoff_scalar: 1.5,
      # What each attempt after the first may take.
      fetch_retry_timeout_millis: 10_000,
      # Whether each wait is drawn between zero and the back-off.
      fetch_retry_jitter: false,
      # Retries allowed for each hundred fetches; 0: any number.
      fetch_retry_budget_percent: 0,
      # A bound on every whole fetch; nil: none.
      fetch_deadline_millis: nil,
      # Connections, and so exchanges at the same time.
      connection_pool_max_size: 8,
      # How long an unused connection may be used again.
      connection_idle_timeout_millis: 30_000,
      # How long a connection is used, or NO_LIMIT.
      connection_max_lifetime_millis: 300_000,
      # Fetches, of every kind, that may be under way or in line at once.
      max_pending_fetches: 1_024,
      # The largest body that is read, after decompression.
      max_response_bytes: 8 * 1024 * 1024,
      # A PEM file with the authorities to trust in place of the built-in ones.
      ca_file: nil,
      # http(s)://[user:password@]host[:port]; nil: what the environment says.
      proxy_url: nil,
      # Whether HTTPS_PROXY and its kin are obeyed.
      use_environment_proxy: true,
      # What the service is told to be asked by; nil: libexperiment-ruby and its version.
      library: nil
    }.freeze

    attr_accessor(*DEFAULTS.keys)

    # @param settings [Hash] any of DEFAULTS, as keywords
    # @raise [ArgumentError] a keyword is none of DEFAULTS
    def initialize(**settings)
      unknown = settings.keys - DEFAULTS.keys
      raise ArgumentError, "unknown settings: #{unknown.join(', ')}" unless unknown.empty?

      DEFAULTS.merge(settings).each { |name, value| public_send("#{name}=", value) }
    end

    # @return [Integer] the longest that a fetch can take with these settings: README, "How long a fetch
    #   can take". NO_LIMIT if nothing bounds it.
    def worst_case_millis
      Native.exp_config_worst_case_millis(to_native)
    end

    # @return [String] all settings; of the proxy, which may have a password, whether there is one
    def inspect
      settings = DEFAULTS.keys.to_h { |name| [name, public_send(name)] }
      settings[:proxy_url] &&= '[hidden]'
      "#<#{self.class} #{settings}>"
    end

    # These settings in the library's own form. It remembers a value that it refuses: making the client
    # fails with that.
    # @api private
    def to_native
      native = Native.owned(Native.exp_config_new)
      Native::SETTINGS.each do |name, type|
        value = native_value(name)
        set(native, name, type, value) unless value.nil?
      end
      native
    end

    private

    def native_value(name)
      case name
      when :server_url then server_url unless server_url == DEFAULT_SERVER_URL
      when :library then library || "libexperiment-ruby/#{VERSION}"
      else public_send(name)
      end
    end

    def set(native, name, type, value)
      case type
      when :text
        text = Native.utf8(name, value)
        Native.public_send(:"exp_config_set_#{name}_n", native, text, text.bytesize)
      when :zone then Native.exp_config_set_server_zone(native, Native::ZONES.fetch(value.to_s.upcase, -1))
      when :switch then Native.public_send(:"exp_config_set_#{name}", native, value ? 1 : 0)
      else Native.public_send(:"exp_config_set_#{name}", native, Native.number(name, type, value))
      end
    end
  end
end
