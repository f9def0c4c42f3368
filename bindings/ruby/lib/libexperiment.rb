# frozen_string_literal: true

if defined?(AmplitudeExperiment::RemoteEvaluationClient)
  raise LoadError, 'libexperiment and amplitude-experiment both define AmplitudeExperiment: load only one of them'
end

require_relative 'libexperiment/version'
require_relative 'libexperiment/native'
require_relative 'libexperiment/outs'
require_relative 'libexperiment/failure'
require_relative 'libexperiment/config'
require_relative 'libexperiment/user'
require_relative 'libexperiment/fetch_options'
require_relative 'libexperiment/variant'
require_relative 'libexperiment/variants'
require_relative 'libexperiment/log'
require_relative 'libexperiment/inbox'
require_relative 'libexperiment/pending'
require_relative 'libexperiment/process_state'
require_relative 'libexperiment/native_client'
require_relative 'libexperiment/client'

# Variants from Amplitude Experiment, each fetch back within the time you set. The names are those of
# the vendor's gem, amplitude-experiment.
module AmplitudeExperiment
  @clients = {}
  @lock = Mutex.new

  # The one client of an API key, made when first asked for. Like the vendor's, it ignores the config of
  # every later call with that key; unlike it, a client that was closed is replaced. Any thread.
  #
  # @param api_key [String] a server deployment key
  # @param config [RemoteEvaluationConfig, nil] nil for the defaults
  # @return [RemoteEvaluationClient]
  # @raise [InvalidArgumentError] the key or a setting is not what it must be
  def self.initialize_remote(api_key, config = nil)
    @lock.synchronize do
      @clients.delete(api_key) if @clients[api_key]&.closed?
      @clients[api_key] ||= RemoteEvaluationClient.new(api_key, config)
    end
  end
end
