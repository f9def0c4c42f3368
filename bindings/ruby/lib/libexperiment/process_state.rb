# frozen_string_literal: true

module AmplitudeExperiment
  # What cannot be taken along into a forked child: inboxes, whose fetches stay the parent's, and threads.
  # @api private
  class ProcessState
    # Inboxes beyond so many are not kept when they are given back; each has a descriptor.
    IDLE_INBOXES = 64

    # This process's own. Asking for the process costs 0.1 µs; a fork in C code calls no hook of Ruby's (and where Ruby
    # remembers the number all the same, each inbox is asked, too). There
    # is no lock, which a signal handler could not take: of two threads that are first, each may get one of its
    # own, and both work.
    def self.current
      current = @current
      current&.pid == Process.pid ? current : (@current = new)
    end

    # @return [Integer]
    attr_reader :pid
    # @return [Dispatcher]
    attr_reader :dispatcher

    def initialize
      @pid = Process.pid
      @idle = Thread::Queue.new
      @dispatcher = Dispatcher.new
    end

    # Lends an inbox to the block. An interrupted block's inbox is thrown away.
    def with_inbox
      inbox = idle_inbox || Inbox.new
      outcome = yield inbox
      clean = inbox
      inbox = nil # Interrupted from here on, it is lost, and collected, but never in two hands.
      give_back(clean)
      outcome
    ensure
      inbox&.abandon
    end

    private

    def idle_inbox
      until @idle.empty?
        inbox = @idle.pop(true)
        return inbox unless inbox.inherited?
      end
    rescue ThreadError
      nil # Another thread was faster.
    end

    def give_back(inbox)
      inbox.outs.clear
      @idle.size < IDLE_INBOXES ? @idle.push(inbox) : inbox.completions.free
    end
  end
  private_constant :ProcessState
end
