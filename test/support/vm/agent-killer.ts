import type { Pod } from '../containers/pod.ts'

export interface AgentKiller {
  /** Kills the agent after `afterMs`; resolves before that. */
  begin(afterMs: number): Promise<void>
  /** Resolves when the kill no longer depends on the container of the killer. */
  begun(): Promise<void>
  /** Returns the pid. */
  killed(): Promise<string>
}

/**
 * A hook runs outside of its container. This hook leaves a program that kills the agent for each line of a fifo, after that
 * many milliseconds, and answers with the pid.
 */
const KILLER = [
  'bin/busybox mkfifo killed kill;',
  'while read ms; do bin/busybox usleep $((ms * 1000));',
  'pid=$(bin/busybox pidof kata-agent); kill -KILL $pid; echo $pid > killed; done < kill > /dev/null 2>&1 &',
].join(' ')

const ASK_KILLER = [
  'until [ -p /kill ]; do usleep 10000; done; exec 3<> /kill 4<> /killed; echo up;',
  'while read ms; do echo $ms >&3; echo begun; read pid <&4; echo killed $pid; done',
].join(' ')

export function agentKillingHook(root: string, first = 'true'): { Path: string; Args: string[] } {
  const program = `${root}/bin/busybox`
  return {
    Path: program,
    Args: ['sh', '-c', `${first}; ${program} kill -KILL $(${program} pidof kata-agent)`],
  }
}

export async function startAgentKiller(pod: Pod): Promise<AgentKiller> {
  const program = `${pod.root}/bin/busybox`
  const hook = { Path: program, Args: ['sh', '-c', `cd ${pod.root}; ${KILLER}`] }
  const asking = await pod.run('agent-killer', ['sh', '-c', ASK_KILLER], {
    spec: { Hooks: { Poststart: [hook] } },
  })
  await asking.readUntil('up\n')
  let unread = ''
  const said = async (wanted: RegExp) => {
    let found = wanted.exec(unread)
    while (found === null) {
      const chunk = await asking.read()
      if (chunk.length === 0) throw new Error(`the killer ended before ${wanted}: ${unread}`)
      unread += chunk.toString()
      found = wanted.exec(unread)
    }
    unread = unread.slice(found.index + found[0].length)
    return found[1] ?? ''
  }
  return {
    begin: (afterMs) => asking.write(`${Math.round(afterMs)}\n`),
    begun: async () => void (await said(/begun\n/)),
    killed: () => said(/killed (\d+)\n/),
  }
}
