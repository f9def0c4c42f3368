# frozen_string_literal: true

module AmplitudeExperiment
  # The library's client, and a fetch's way through it: user and options in, Variants or a Failure out.
  # @api private
  class NativeClient
    # @param api_key [String]
    # @param config [FFI::Pointer] an exp_config
    def initialize(api_key, config)
      outs = Outs.new
      key = Native.utf8(:api_key, api_key)
      status = Native.exp_client_new_n(key, key.bytesize, config, outs.at(:client), outs.at(:error))
      raise Failure.from(outs[:error]) unless status == Native::OK

      @native = Native.owned(outs.take(:client))
    ensure
      outs&.clear
    end

    # Takes out of what has arrived in the outs what it came to: variants or an error, there too.
    def self.receive(outs)
      Native.exp_pending_take(outs[:arrived], outs.at(:variants), outs.at(:error))
    end

    # More variants than one thread makes for others while they wait: these take four milliseconds.
    LARGE = 1_000

    def self.large?(outs)
      Native.exp_variants_count(outs[:variants]) > LARGE
    end

    # What was received, as objects.
    # @return [Variants, Failure]
    def self.outcome(outs, deployed:)
      return Failure.from(outs[:error]) unless outs[:error].null?
      return Variants.from(outs[:variants]) unless deployed

      Native.exp_variants_filter_deployed(outs[:variants], outs.at(:deployed), nil)
      Variants.from(outs[:deployed])
    end

    # @return [Variants, Failure]
    def fetch(json, options, deployed:)
      ProcessState.current.with_inbox do |inbox|
        failure = submit(inbox.outs, inbox.completions, nil, json, options)
        next failure if failure

        inbox.wait
        NativeClient.receive(inbox.outs)
        NativeClient.outcome(inbox.outs, deployed:)
      end
    end

    # @return [Failure, nil] why the fetch could not begin
    def start(pending, json, options)
      outs = Outs.new
      failure = ProcessState.current.dispatcher.start(pending) do |completions, number|
        submit(outs, completions, number, json, options)
      end
      pending.started(Native.owned(outs.take(:pending))) unless failure
      failure
    ensure
      outs&.clear
    end

    # Lets other threads run while it waits, but cannot be interrupted.
    # @return [Boolean] whether nothing had to be cut off
    def close(timeout_millis)
      Native.exp_client_close(@native, timeout_millis) == Native::OK
    end

    # @param format [Integer] of exp_metrics_format
    # @return [String]
    def metrics(format)
      outs = Outs.new
      status = Native.exp_client_metrics(@native, format, outs.at(:text), outs.at(:error))
      raise Failure.from(outs[:error]) unless status == Native::OK

      Native.text(Native.exp_text_value(outs[:text]), Native.exp_text_length(outs[:text]))
    ensure
      outs&.clear
    end

    # @return [Integer] entries of all answers that were no variants
    def entries_skipped
      metrics(Native::METRICS_OPENMETRICS)[/^experiment_entries_skipped_total (\d+)/, 1].to_i
    end

    private

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
  end
  private_constant :NativeClient
end
