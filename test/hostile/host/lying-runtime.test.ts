import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import { hostRuntime } from '../../support/host/host-runtimes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Runs the real runtime, then writes another pid into its pid file: for create, or only for exec. */
const LYING_RUNTIME = `#!/bin/sh
RUNC "$@"
status=$?
case " $* " in *" VERB "*)
  while [ "$1" != --pid-file ]; do shift; done
  echo PID > "$2";;
esac
exit $status
`

describe.each([
  ['pid 1', '1'],
  ['the agent', '$PPID'],
])('a runtime that names %s as the new process', (_what, pid) => {
  it.each(['create', 'exec'])('makes %s fail, and nothing is signalled', async (verb) => {
    const folder = temporaryFolder()
    const script = LYING_RUNTIME.replace('RUNC', await hostRuntime('runc'))
      .replace('VERB', verb)
      .replace('PID', pid)
    writeFileSync(join(folder, 'runc'), script, { mode: 0o755 })
    const pod = await startPod({ runtime: join(folder, 'runc') })
    try {
      const agentPid = pod.started.agentPid()
      if (verb === 'exec') await pod.run('lied', ['sleep', '1000'])
      const call =
        verb === 'exec' ? pod.add('lied', 'e', ['sleep', '1000']) : pod.create('lied', ['sleep', '1000'])
      await expect(call).rejects.toMatchObject({
        code: 'INTERNAL',
        message: `runc ${verb}: process ${pid === '1' ? '1' : agentPid} is not in the container's cgroup`,
      })
      if (verb === 'exec') await pod.remove('lied')
      expect(leftoversOf(pod.started, 'lied')).toEqual(NOTHING_LEFT)
      expect(pod.started.agentPid()).toBe(agentPid)
    } finally {
      await pod.stop()
    }
  })
})
