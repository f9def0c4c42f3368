# frozen_string_literal: true

require 'json'
require 'open3'
require 'libexperiment'

# The mock of the evaluation service, steered by its standard input: tests/mock/README.md.
class Mock
  def initialize(environment = {})
    program = ENV.fetch('MOCK_SERVICE') { abort 'MOCK_SERVICE must name the mock of the evaluation service' }
    @orders, @answers, = Open3.popen2(environment, program)
    @service = JSON.parse(@answers.gets)['url']
    @lock = Mutex.new
  end

  # The URL of the service itself.
  attr_reader :service

  def order(order)
    answer = @lock.synchronize do
      @orders.puts(JSON.generate(order, max_nesting: false))
      JSON.parse(@answers.gets, max_nesting: false)
    end
    raise "the mock refused #{order}: #{answer['error']}" if answer['error']

    answer
  end

  # Starts one more service.
  def play(script = {}) = order(play: script)
  def seen(id) = order(seen: id)
  def stop(id) = order(stop: id)
end
