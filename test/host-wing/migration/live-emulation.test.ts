import { expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { letRun, stopOf } from '../../../src/host/migration/bulk/live-emulation.ts'

/** A QEMU with these answers. */
function qemuWith(answers: Readonly<Record<string, unknown>>): Parameters<typeof stopOf>[0] {
  const execute = async (command: string) => {
    const answer = answers[command]
    if (answer instanceof Error) throw answer
    return answer
  }
  return { qmp: { execute }, signal: neverAborted } as unknown as Parameters<typeof stopOf>[0]
}

it.each([
  ['emulation of the tried version', false, 7, 2, 'for the first look'],
  ['emulation of a version before it', false, 7, 1, 'for all'],
  ['emulation of a version that was not tried', false, 8, 2, 'for all'],
  ['emulation without the fault', false, 9, 0, 'none'],
  ['KVM', true, 7, 2, 'none'],
] as const)('with %s the guest stands still as it must', async (_, enabled, major, minor, expected) => {
  const version = { qemu: { major, minor, micro: 0 }, package: '' }
  expect(await stopOf(qemuWith({ 'query-kvm': { enabled }, 'query-version': version }))).toBe(expected)
})

it('lets no guest run that QEMU has stopped meanwhile, and tells any other refusal', async () => {
  const refusal = new Error('refused')
  const stopped = { cont: refusal, 'query-status': { status: 'finish-migrate' } }
  await expect(letRun(qemuWith(stopped))).resolves.toBeUndefined()
  const other = { cont: refusal, 'query-status': { status: 'io-error' } }
  await expect(letRun(qemuWith(other))).rejects.toBe(refusal)
})
