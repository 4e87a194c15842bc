import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessOptions } from '../../support/containers/container-requests.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import { hostRuntime } from '../../support/host/host-runtimes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** CAP_KILL and CAP_SYS_CHROOT, which the tests' containers have. */
const CONTAINER_CAPABILITIES = '0000000000040020'
const NO_CAPABILITIES = '0000000000000000'

describe.each(['runc', 'crun'] as const)('a process added by %s', (runtime) => {
  let folder: string
  let pod: AgentPod
  beforeAll(async () => {
    folder = temporaryFolder()
    // A script that records its arguments and then runs the real runtime.
    const noting = `#!/bin/sh\necho "$@" >> ${folder}/calls\nexec ${await hostRuntime(runtime)} "$@"\n`
    writeFileSync(join(folder, runtime), noting, { mode: 0o755 })
    pod = await startPod({ runtime: join(folder, runtime) })
    furnish(pod.root)
    await pod.run('c1', ['sleep', '1000'])
  })
  afterAll(() => pod.stop())

  let count = 0
  async function outputOf(script: string, process: ProcessOptions['process'] = {}): Promise<string> {
    const added = await pod.add('c1', `e${++count}`, ['sh', '-c', script], { process })
    const [output, errors] = [await added.readAll('stdout'), await added.readAll('stderr')]
    expect(await added.wait(), errors.toString()).toBe(0)
    return output.toString()
  }

  it('runs as the user and the groups that it names, with the home from the container’s passwd', async () => {
    const look = 'id -u; id -g; id -G; echo $HOME'
    expect(await outputOf(look)).toBe('0\n0\n0\n/root\n')
    const User = { UID: 1000, GID: 1000, AdditionalGids: [2000, 3000] }
    expect(await outputOf(look, { User })).toBe('1000\n1000\n1000 2000 3000\n/home/ann\n')
    expect(await outputOf('echo $HOME', { User: { UID: 4321, GID: 4321 } })).toBe('/\n')
    expect(await outputOf('echo $HOME', { User, Env: ['PATH=/bin', 'HOME=/mine'] })).toBe('/mine\n')
  })

  it('has the capabilities that it names, or else the container’s', async () => {
    const look = "sed -n 's/^Cap\\(Prm\\|Eff\\|Bnd\\):\\t//p' /proc/self/status"
    const all = (value: string) => `${value}\n`.repeat(3)
    expect(await outputOf(look, { Capabilities: undefined })).toBe(all(CONTAINER_CAPABILITIES))
    const kill = ['CAP_KILL']
    const Capabilities = { Bounding: kill, Effective: kill, Permitted: kill }
    expect(await outputOf(look, { Capabilities })).toBe(all('0000000000000020'))
    expect(await outputOf(look, { Capabilities: {} })).toBe(all(NO_CAPABILITIES))
  })

  it('is refused without capabilities in a container that has none to inherit', async () => {
    const process = { Capabilities: undefined }
    await pod.run('bare', ['sleep', '1000'], { process })
    await expect(pod.add('bare', 'e', ['true'], { process })).rejects.toMatchObject({
      code: 'INTERNAL',
      message: 'the process names no capabilities and the container has none to inherit',
    })
    await pod.remove('bare')
  })

  it('has the limits that it names', async () => {
    const Rlimits = [
      { Type: 'RLIMIT_CORE', Soft: 7n, Hard: 9n },
      { Type: 'RLIMIT_STACK', Soft: 2n ** 20n, Hard: 2n ** 21n },
    ]
    const look = "grep -E 'core|stack' /proc/self/limits | tr -s ' '"
    const shown = await outputOf(look, { Rlimits })
    expect(shown).toBe('Max stack size 1048576 2097152 bytes \nMax core file size 7 9 bytes \n')
  })

  it('starts in its working directory', async () => {
    expect(await outputOf('pwd', { Cwd: '/home/ann' })).toBe('/home/ann\n')
    expect(await outputOf('pwd', { Cwd: '' })).toBe('/\n')
    // The path is resolved below the container's root and cannot leave it.
    expect(await outputOf('pwd', { Cwd: '/home/../../../home/ann' })).toBe('/home/ann\n')
  })

  it('has the environment that it names, the last of two values', async () => {
    const Env = ['PATH=/bin', 'A=1', 'A=two words', 'EMPTY=', 'HOME=/', 'LINES=1\n2']
    const shown = await outputOf('echo "$A:$LINES"; env | grep EMPTY', { Env })
    expect(shown).toBe('two words:1\n2\nEMPTY=\n')
  })

  it('gains no privileges with NoNewPrivileges, and has an ordinary umask', async () => {
    const look = "umask; sed -n 's/^NoNewPrivs:\\t//p' /proc/self/status"
    expect(await outputOf(look)).toBe('0022\n0\n')
    expect(await outputOf(look, { NoNewPrivileges: true })).toBe('0022\n1\n')
  })

  it('has a terminal of its own, of the size that it names', async () => {
    const process = { Terminal: true, ConsoleSize: { Height: 11, Width: 22 } }
    // crun sets the size after the process has started; until then stty prints nothing, and may end with 0.
    const sized = runtime === 'crun' ? 'until stty size | grep . ; do :; done 2>/dev/null' : 'stty size'
    const script = `${sized}; tty; (: > /dev/tty) && echo controlling; test -t 0 && test -t 2 && echo all`
    const added = await pod.add('c1', 'terminal', ['sh', '-c', script], { process })
    const [size, tty, ...rest] = (await added.readAll()).toString().split('\r\n')
    expect(size).toBe('11 22')
    expect(tty).toMatch(/^\/dev\/(pts\/\d+|console)$/)
    expect(rest).toEqual(['controlling', 'all', ''])
    expect(await added.wait()).toBe(0)
  })

  it('is refused at once in a container that has ended', async () => {
    const init = await pod.run('over', ['true'])
    await init.readAll()
    const answer = { code: 'NOT_FOUND', message: 'Process not found: init process missing' }
    // The agent may or may not have recorded the exit yet.
    await expect(pod.add('over', 'e', ['true'])).rejects.toMatchObject({
      code: expect.stringMatching(/NOT_FOUND|INTERNAL/),
    })
    await init.wait()
    await expect(pod.add('over', 'e', ['true'])).rejects.toMatchObject(answer)
    await pod.remove('over')
  })

  it('whose exit is not collected does not delay the removal of its container', async () => {
    await pod.run('held', ['sleep', '1000'])
    for (const id of ['a', 'b', 'c']) await (await pod.add('held', id, ['true'])).readAll()
    await pod.remove('held')
    // No process is a zombie, and the runtime had no process left to kill or to wait for.
    expect(leftoversOf(pod.started, 'held')).toMatchObject({
      ...NOTHING_LEFT,
      processes: [expect.anything()],
    })
    const calls = readFileSync(join(folder, 'calls'), 'utf8').trim().split('\n')
    expect(calls.filter((call) => / (kill|delete) /.test(call))).toEqual([])
  })
})

function furnish(root: string): void {
  mkdirSync(join(root, 'home/ann'), { recursive: true })
  const passwd = 'root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n'
  writeFileSync(join(root, 'etc/passwd'), passwd)
}
