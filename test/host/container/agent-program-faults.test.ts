import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { ProcessOptions } from '../../support/containers/container-requests.ts'
import type { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, leftoversOf, startPod } from '../../support/host/agent-pod.ts'

const ANN = { User: { UID: 1000, GID: 1000 } }
const NONE = 4_294_967_295

/** Values that no process can have: a field, and the beginning of the error text. */
const CHECKED: readonly [string, NonNullable<ProcessOptions['process']>, string][] = [
  ['user', { User: { UID: NONE } }, `process.user.uid: ${NONE}, want at most`],
  ['group', { User: { GID: NONE } }, `process.user.gid: ${NONE}, want at most`],
  ['added group', { User: { AdditionalGids: [NONE] } }, `process.user.additionalGids: ${NONE}, want at most`],
  ['working directory', { Cwd: 'bin' }, 'process.cwd: "bin", want an absolute path'],
]

/** Programs that a runtime refuses, and its error text. */
const UNFIT: readonly [string, string, string][] = [
  ['a name that is not there', 'nosuch', 'was not found'],
  ['a path that is not there', '/bin/nosuch', 'was not found'],
  ['a name with quotes', `no 'such" \``, 'was not found'],
  ['a path below a file', '/bin/plain/x', 'was not found'],
  ['a file that may not be executed', '/bin/plain', 'cannot be executed'],
  ['a folder', '/bin', 'cannot be executed'],
]

/** Programs that only execve refuses, after the call has been answered. */
const LATE: readonly [string, string, string][] = [
  ['a wrong format', '/bin/garbage', 'exec format error'],
  ['a script without its interpreter', '/bin/script', 'no such file or directory'],
  ['a program without its loader', '/bin/dynamic', 'no such file or directory'],
]

const NOT_EXECUTED = { runc: 255, crun: 1 } as const

describe.each(['runc', 'crun'] as const)('%s, asked for an impossible process,', (runtime) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({ runtime })
    furnish(pod.root)
    await pod.run('c1', ['sleep', '1000'])
  })
  afterAll(() => pod?.stop())

  let count = 0
  const add = (args: readonly string[], options: ProcessOptions) =>
    pod.add('c1', `e${++count}`, args, options)

  async function expectRefusal(code: string, message: unknown, args: readonly string[], process = {}) {
    for (const terminal of [false, true]) {
      const options = { process, terminal }
      await expect(add(args, options)).rejects.toMatchObject({ code, message })
      await expect(pod.create('unmade', args, options)).rejects.toMatchObject({ code, message })
    }
    expect(leftoversOf(pod.started, 'unmade')).toMatchObject({ mounts: [], cgroups: [], bundles: [] })
  }

  async function expectEnd(process: RemoteProcess, text: string) {
    expect((await process.readAll('stderr')).toString().toLowerCase()).toContain(text)
    expect(await process.wait()).toBe(NOT_EXECUTED[runtime])
  }

  it.each(CHECKED)('is not run for an invalid %s', async (_what, process, text) => {
    await expectRefusal('INVALID_ARGUMENT', expect.stringContaining(text), ['true'], process)
  })

  it.each(UNFIT)('refuses it in create and exec: %s', async (_what, program, told) => {
    const text = `the file ${program} ${told}: ${runtime} `
    await expectRefusal('INTERNAL', expect.stringContaining(text), [program])
  })

  it.each([
    ['is a file', '/bin/plain', 'not a directory'],
    ['cannot be made', '/proc/no/such', 'no such file or directory'],
  ])('refuses a working directory that %s', async (_what, Cwd, reason) => {
    const text = new RegExp(`^${runtime} .*(chdir|mkdir).*(${Cwd}|/proc/no).*: ${reason}$`, 'is')
    await expectRefusal('INTERNAL', expect.stringMatching(text), ['true'], { Cwd })
  })

  it('refuses a program that its user does not reach, or starts it, and it ends at once', async () => {
    if (runtime === 'runc') {
      const text = 'the file /closed/x cannot be executed: runc '
      await expectRefusal('INTERNAL', expect.stringContaining(text), ['/closed/x'], ANN)
    } else {
      await expectEnd(await add(['/closed/x'], { process: ANN }), 'permission denied')
      await expectEnd(await pod.run('brief', ['/closed/x'], { process: ANN }), 'permission denied')
      await pod.remove('brief')
    }
  })

  it.each(LATE)('starts it, and it ends at once and says why: %s', async (_what, program, text) => {
    await expectEnd(await add([program], {}), text)
    await expectEnd(await pod.run('brief', [program]), text)
    await pod.remove('brief')
  })

  it('makes the working directory of a container, and accepts no name of a user', async () => {
    const process = { Cwd: '/made/for/it', User: { UID: 1000, GID: 1000, Username: 'nosuch' } }
    expect(await pod.output('c2', 'pwd; id -u', { process })).toBe('/made/for/it\n1000\n')
  })
})

function furnish(root: string): void {
  writeFileSync(join(root, 'bin/plain'), '#!/bin/sh\n', { mode: 0o644 })
  mkdirSync(join(root, 'closed'), { mode: 0o700 })
  writeFileSync(join(root, 'closed/x'), '#!/bin/sh\n', { mode: 0o755 })
  writeFileSync(join(root, 'bin/garbage'), 'no program', { mode: 0o755 })
  writeFileSync(join(root, 'bin/script'), '#!/bin/no-such-shell\n', { mode: 0o755 })
  // Debian's own program needs the dynamic loader, which is missing in the container.
  copyFileSync('/bin/cat', join(root, 'bin/dynamic'))
}
