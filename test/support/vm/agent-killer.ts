import type { Pod } from '../containers/pod.ts'

/** Kills the agent in a guest, and nothing else. */
export interface AgentKiller {
  /** Kills it after `afterMs`, and resolves before that. */
  begin(afterMs: number): Promise<void>
  /** Resolves once the agent of an earlier `begin` was killed, with its pid. */
  killed(): Promise<string>
}

/**
 * A hook runs outside of its container. This one leaves a program that kills the agent for each line that the container
 * writes into a fifo, after so many milliseconds, and answers with the pid.
 */
const KILLER = [
  'bin/busybox mkfifo killed kill;',
  'while read ms; do bin/busybox usleep $((ms * 1000));',
  'pid=$(bin/busybox pidof kata-agent); kill -KILL $pid; echo $pid > killed; done < kill > /dev/null 2>&1 &',
].join(' ')

/** Asks that program, once for each line. */
const ASK_KILLER = [
  'until [ -p /kill ]; do usleep 10000; done; exec 3<> /kill 4<> /killed; echo up;',
  'while read ms; do echo $ms >&3; read pid <&4; echo $pid; done',
].join(' ')

/** A hook, so run outside of its container, that kills the agent after `first`. The folder `root` of the guest has busybox. */
export function agentKillingHook(root: string, first = 'true'): { Path: string; Args: string[] } {
  const program = `${root}/bin/busybox`
  return {
    Path: program,
    Args: ['sh', '-c', `${first}; ${program} kill -KILL $(${program} pidof kata-agent)`],
  }
}

/** Runs a container of this pod, whose root can be written to, that kills the agent when it is asked to. */
export async function startAgentKiller(pod: Pod): Promise<AgentKiller> {
  const program = `${pod.root}/bin/busybox`
  const hook = { Path: program, Args: ['sh', '-c', `cd ${pod.root}; ${KILLER}`] }
  const asking = await pod.run('agent-killer', ['sh', '-c', ASK_KILLER], {
    spec: { Hooks: { Poststart: [hook] } },
  })
  await asking.readUntil('up\n')
  return {
    begin: (afterMs) => asking.write(`${Math.round(afterMs)}\n`),
    killed: async () => (await asking.readUntil('\n')).trim(),
  }
}
