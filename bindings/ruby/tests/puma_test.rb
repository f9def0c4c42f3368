# frozen_string_literal: true

require_relative 'helper'
require 'net/http'
require 'socket'
require 'tmpdir'

# Puma forks its workers from a process that has a client already, which has fetched.
class PumaTest < ExperimentTest
  APPLICATION = <<~RUBY
    require 'libexperiment'
    settings = { server_url: ENV.fetch('EXPERIMENT_SERVER_URL'), connection_pool_max_size: 2 }
    CLIENT = AmplitudeExperiment.initialize_remote('key', AmplitudeExperiment::RemoteEvaluationConfig.new(**settings))
    CLIENT.fetch_v2!(nil)
    run(lambda do |env|
      user = AmplitudeExperiment::User.new(user_properties: { nonce: env['QUERY_STRING'] })
      payload = CLIENT.fetch_v2!(user).fetch('demo-nonce').payload
      [200, { 'Content-Type' => 'text/plain' }, ["\#{payload} \#{Process.pid}"]]
    end)
  RUBY

  def test_every_worker_fetches_and_no_answer_is_crossed
    with_puma do |port, master|
      answers = Array.new(8) { Thread.new { Array.new(25) { ask(port) } } }.flat_map(&:value)
      assert_empty(answers.reject { |nonce, payload, _| nonce == payload })
      workers = answers.map(&:last).uniq
      assert_equal 2, workers.size
      refute_includes workers, master
    end
  end

  def ask(port)
    nonce = SecureRandom.hex(8)
    [nonce, *Net::HTTP.get(URI("http://127.0.0.1:#{port}/?#{nonce}")).split]
  end

  def with_puma
    Dir.mktmpdir do |directory|
      File.write(File.join(directory, 'config.ru'), APPLICATION)
      environment = { 'EXPERIMENT_SERVER_URL' => play({}), 'RUBYLIB' => File.expand_path('../lib', __dir__) }
      port = free_port
      puma = spawn(environment, 'puma', '--workers', '2', '--threads', '4', '--preload', '--quiet',
                   '--bind', "tcp://127.0.0.1:#{port}", chdir: directory, %i[out err] => File::NULL)
      eventually('puma answering', 20) { answers?(port) }
      yield port, puma.to_s
    ensure
      Process.kill('TERM', puma)
      Process.wait(puma)
    end
  end

  def free_port = TCPServer.open('127.0.0.1', 0) { |server| server.addr[1] }

  def answers?(port)
    ask(port)
  rescue SystemCallError
    false
  end
end
