# frozen_string_literal: true

# Fetches as it is told, in Ruby. Orders are read from standard input, JSON by the line, and each is
# answered by a line; see ../README.md.

require 'json'
require 'libexperiment'

# What it is told, it does.
class Victim
  include AmplitudeExperiment

  def obey(order)
    case order
    in { client: settings } then make_client(settings)
    in { user: fields } then return fetch(fields)
    in { users: } then return fetch_at_once(users)
    in { close: _ } then @client.close
    end
    {}
  end

  private

  def make_client(settings)
    config = RemoteEvaluationConfig.new(use_environment_proxy: false, logger: Logger.new(nil), **settings)
    @client = RemoteEvaluationClient.new('key', config)
  end

  def fetch_at_once(users)
    came = users.map { |fields| Thread.new { fetch(fields) } }.map(&:value)
    { well: came.count { |one| !one.key?(:error) } }
  end

  def now_millis = Process.clock_gettime(Process::CLOCK_MONOTONIC, :float_millisecond)

  def fetch(fields)
    user = User.new(**fields)
    began = now_millis
    begin
      variants = @client.fetch_v2!(user)
      took = now_millis - began
      { millis: took, variants: { 'demo-nonce': { payload: variants['demo-nonce']&.payload } } }
    rescue Failure => e
      took = now_millis - began
      { millis: took, error: e.status, http_status: e.status_code.to_i, phase: e.phase || 'none', message: e.message }
    end
  end
end

trap('ALRM') { nil } if ENV['FAULTS_ALARMS']
victim = Victim.new
$stdin.each_line do |line|
  puts JSON.generate(victim.obey(JSON.parse(line, symbolize_names: true)))
  $stdout.flush
end
