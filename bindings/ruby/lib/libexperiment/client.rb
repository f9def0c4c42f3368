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
      @retries = config.fetch_retries || 0
      @native = NativeClient.new(api_key, config.to_native)
      @closed = false
      @log = Log.new(config)
      @log.settings(config)
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
      start(user, fetch_options, deployed: false, callback:)
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
      start(user, fetch_options, deployed: true, callback:)
    end

    # Refuses new fetches, ends those in line, waits for those that run, and cuts them off when the time is
    # over. Can be interrupted; the closing goes on.
    #
    # @param timeout_millis [Integer] 0 to 86 400 000, or RemoteEvaluationConfig::NO_LIMIT
    # @return [Boolean] whether nothing had to be cut off
    # @raise [InvalidArgumentError] there is no such time; the client stays open
    def close(timeout_millis = 1_000)
      check_time(timeout_millis)
      @closed = true
      # A thread, so that a Fiber scheduler's other fibers go on, and an interrupt need not wait.
      Thread.new { @native.close(timeout_millis) }.value
    end

    # @return [Boolean] whether close was called
    def closed? = @closed

    # @return [Hash{String => Object}] what the client has counted so far; times in seconds
    def metrics
      JSON.parse(@native.metrics(Native::METRICS_JSON))
    end

    # @return [String] the same as OpenMetrics text, for a scraper
    def openmetrics
      @native.metrics(Native::METRICS_OPENMETRICS)
    end

    private

    # The library would refuse it, too, but on another thread.
    def check_time(millis)
      Native.number(:timeout_millis, :uint64, millis)
      return if millis <= Native::LONGEST_MILLIS || millis == Native::NO_LIMIT

      raise Failure.of(Native::INVALID_ARGUMENT,
                       "timeout_millis must be 0 to #{Native::LONGEST_MILLIS}, or NO_LIMIT, not #{millis}")
    end

    # @return [Variants, Failure]
    def outcome_of(user, options, deployed: false)
      outcome = @native.fetch(json_of(user), options, deployed:)
      @log.fetch(outcome, @native)
      outcome
    end

    def start(user, options, deployed:, callback:)
      tell = teller(user, callback)
      pending = Pending.new(deployed:, settle: method(:settle), tell:, own_thread: !callback.nil?)
      failure = @native.start(pending, json_of(user), options)
      raise failure if failure

      pending
    end

    def json_of(user)
      User.json_of(user).tap { |json| @log.user(json) }
    end

    # By the table "What comes back".
    def settle(outcome)
      return outcome unless outcome.is_a?(Failure)
      raise outcome unless outcome.retryable? && @retries.zero?

      nothing_for(outcome)
    end

    def nothing_for(failure)
      @log.no_variants(failure)
      Variants.without(failure)
    end

    # Tells of the outcome of an asynchronous fetch.
    def teller(user, callback)
      lambda do |outcome|
        @log.fetch(outcome, @native)
        call(callback, user, outcome) if callback
      end
    end

    def call(callback, user, outcome)
      error = outcome if outcome.is_a?(Failure)
      told = [user, error ? nothing_for(error) : outcome, error]
      told.pop if callback.lambda? && callback.arity == 2
      callback.call(*told)
    rescue StandardError => e
      @log.raised(e)
    end
  end
end
