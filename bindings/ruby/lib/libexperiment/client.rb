# frozen_string_literal: true

module AmplitudeExperiment
  # Fetches variants over a bounded pool of connections. Any number of threads and fibers, in the process
  # that made it and in those forked from it. Nothing has to be closed.
  class RemoteEvaluationClient
    # @param api_key [String] a server deployment key
    # @param config [RemoteEvaluationConfig, nil] nil for the defaults; copied
    # @raise [InvalidArgumentError] the key or a setting is not what it must be
    def initialize(api_key, config = nil)
      config ||= RemoteEvaluationConfig.new
      @retries = config.fetch_retries
      @logger = logger_of(config)
      @native = create(Native.utf8(api_key.to_s), config)
      @closed = false
      warn_of_connect_timeout(config)
    end

    # Fetches all variants of a user, default ones too.
    #
    # Returns within the time that the config allows (RemoteEvaluationConfig#worst_case_millis). Of errors
    # that may pass (Failure#retryable?) it makes empty variants if no retries are configured, as the vendor's
    # gem does, and logs them; Variants#error tells. All others it raises, and after retries those as well.
    #
    # @param user [User, Hash, nil] nil: one of whom nothing is known
    # @param fetch_options [FetchOptions, nil]
    # @return [Variants]
    # @raise [FetchError] the fetch failed
    # @raise [InvalidArgumentError] the user or an option is not what it must be
    def fetch_v2(user, fetch_options = nil)
      settle(outcome_of(user, fetch_options))
    end

    # The same, but every failure is raised.
    #
    # @param (see #fetch_v2)
    # @return [Variants]
    # @raise (see #fetch_v2)
    def fetch_v2!(user, fetch_options = nil)
      outcome = outcome_of(user, fetch_options)
      raise outcome if outcome.is_a?(Failure)

      outcome
    end

    # Starts fetch_v2 and returns at once. When it is over, the block is called, once, on a thread of its
    # own. What it raises is logged.
    #
    # @param (see #fetch_v2)
    # @yieldparam user [User, Hash, nil] the one given
    # @yieldparam variants [Variants] empty if it failed
    # @yieldparam error [FetchError, nil] why it failed; a lambda of two parameters is spared it
    # @return [Pending] to wait for it, or to cancel it
    # @raise [FetchError] it cannot begin: the client is closed, or too many are pending
    # @raise [InvalidArgumentError] the user or an option is not what it must be
    def fetch_async_v2(user, fetch_options = nil, &callback)
      start(user, fetch_options, deployed: false, callback: callback)
    end

    # fetch_v2 without variants that are default or not deployed.
    #
    # @deprecated Use {#fetch_v2}.
    # @param (see #fetch_v2)
    # @return [Variants]
    # @raise (see #fetch_v2)
    def fetch(user, fetch_options = nil)
      settle(outcome_of(user, fetch_options, deployed: true))
    end

    # fetch_async_v2 without variants that are default or not deployed.
    #
    # @deprecated Use {#fetch_async_v2}.
    # @param (see #fetch_async_v2)
    # @yieldparam (see #fetch_async_v2)
    # @return [Pending]
    # @raise (see #fetch_async_v2)
    def fetch_async(user, fetch_options = nil, &callback)
      start(user, fetch_options, deployed: true, callback: callback)
    end

    # Refuses new fetches, ends those in line, waits for those that run, and cuts them off when the time is
    # over. Can be interrupted; the closing goes on.
    #
    # @param timeout_millis [Integer]
    # @return [Boolean] whether nothing had to be cut off
    def close(timeout_millis = 1_000)
      @closed = true
      # A thread, so that a Fiber scheduler's other fibers go on, and an interrupt need not wait.
      Thread.new { Native.exp_client_close(@native, timeout_millis) }.value == Native::OK
    end

    # @return [Boolean] whether close was called
    def closed? = @closed

    # @return [Hash{String => Object}] what the client has counted so far; times in seconds
    def metrics
      JSON.parse(metrics_text(:json))
    end

    # @return [String] the same as OpenMetrics text, for a scraper
    def openmetrics
      metrics_text(:openmetrics)
    end

    # Takes what arrived in the outs.
    # @return [Variants, Failure]
    # @api private
    def self.take(outs, deployed:)
      status = Native.exp_pending_take(outs[:arrived], outs.at(:variants), outs.at(:error))
      return Failure.from(outs[:error]) unless status == Native::OK
      return Variants.from(outs[:variants]) unless deployed

      Native.exp_variants_filter_deployed(outs[:variants], outs.at(:deployed), nil)
      Variants.from(outs[:deployed])
    end

    private

    def create(api_key, config)
      native_config = config.to_native
      connection = Log.connect(native_config, @logger)
      outs = Outs.new
      status = Native.exp_client_new_n(api_key, api_key.bytesize, native_config, outs.at(:client), outs.at(:error))
      raise Failure.from(outs[:error]) unless status == Native::OK

      FFI::AutoPointer.new(outs.take(:client), RemoteEvaluationClient.releaser(connection))
    ensure
      outs&.clear
    end

    # Frees a client. Knows nothing of the Ruby one: else that would never be collected.
    # @api private
    def self.releaser(connection)
      lambda do |native|
        Native.exp_free(native)
        Log.disconnect(connection)
      end
    end

    def logger_of(config)
      logger = config.logger || ::Logger.new($stdout, level: ::Logger::ERROR)
      logger.level = ::Logger::DEBUG if config.debug
      logger
    end

    def warn_of_connect_timeout(config)
      return unless config.connect_timeout_millis&.< config.fetch_timeout_millis

      @logger.warn('[Experiment] connect_timeout_millis has no effect: fetch_timeout_millis bounds connecting as well')
    end

    # @return [Variants, Failure]
    def outcome_of(user, options, deployed: false)
      json = User.json_of(user)
      ProcessState.current.with_inbox do |inbox|
        failure = submit(inbox.outs, inbox.completions, nil, json, options)
        next failure if failure

        inbox.wait
        self.class.take(inbox.outs, deployed: deployed)
      end
    end

    def start(user, options, deployed:, callback:)
      json = User.json_of(user)
      pending = Pending.new(deployed: deployed, settle: method(:settle), callback: callback && teller(user, callback))
      outs = Outs.new
      failure = ProcessState.current.dispatcher.start(pending) do |completions, number|
        submit(outs, completions, number, json, options)
      end
      raise failure if failure

      pending.started(Native.owned(outs.take(:pending)))
      pending
    ensure
      outs&.clear
    end

    # @return [Failure, nil] why the fetch could not begin
    def submit(outs, completions, number, json, options)
      begun = Native.exp_user_from_json_n(json, json.bytesize, outs.at(:user), outs.at(:error)) == Native::OK &&
              Native.exp_fetch_v2_submit(@native, outs[:user], native_options(outs, options), completions, number,
                                         outs.at(:pending), outs.at(:error)) == Native::OK
      Failure.from(outs[:error]) unless begun
    end

    def native_options(outs, options)
      return if options.nil?

      outs[:options] = Native.exp_fetch_options_new
      options.write_to(outs[:options])
      outs[:options]
    end

    # By the table "What comes back".
    def settle(outcome)
      return outcome unless outcome.is_a?(Failure)
      raise outcome unless outcome.retryable? && @retries.zero?

      nothing_for(outcome)
    end

    def nothing_for(failure)
      @logger.error("[Experiment] no variants: #{failure.message}")
      Variants.without(failure)
    end

    # Calls the callback with an outcome.
    def teller(user, callback)
      lambda do |outcome|
        error = outcome if outcome.is_a?(Failure)
        told = [user, error ? nothing_for(error) : outcome, error]
        told.pop if callback.lambda? && callback.arity == 2
        callback.call(*told)
      rescue StandardError => e
        @logger.error("[Experiment] the block of an asynchronous fetch failed: #{e.full_message(highlight: false)}")
      end
    end

    def metrics_text(format)
      outs = Outs.new
      status = Native.exp_client_metrics(@native, Native::METRICS_FORMATS.fetch(format), outs.at(:text), outs.at(:error))
      raise Failure.from(outs[:error]) unless status == Native::OK

      Native.text(Native.exp_text_value(outs[:text]), Native.exp_text_length(outs[:text]))
    ensure
      outs&.clear
    end
  end
end
