import { expect, it } from 'vitest'
import { INSTANCES } from '../../../../scripts/test/instances-run.ts'
import { type RunLeaseUpdate, RunLeaseUpdate_Status as Status } from '../../../../src/gen/vm.ts'
import { openController } from '../../../../src/host/controller/client.ts'
import { randomFrom } from '../../../support/kills/random.ts'
import { credentialsOf, startControllers } from '../../../support/wing/controller/test-controllers.ts'
import { fullLeases, hypervisor, storageLocking } from '../../../support/wing/controller/vms.ts'
import { type Cut, CuttingLink } from '../../../support/wing/moves/faults/cutting-link.ts'

const { [INSTANCES.lives]: lives, [INSTANCES.seed]: given } = process.env
const seed = Number(given ?? Math.floor(Math.random() * 0x7fffffff))
const random = randomFrom(seed)
/** Of each direction, in `npm test`. */
const SOME = 8

const test = await startControllers()
const [direct, other] = [test.clientOf('a'), test.clientOf('b')]
const within = AbortSignal.timeout(6 * 3_600_000)

/** Each byte of what a call carries, or some, none twice: a VM is named after its cut. */
function cutsOf({ back, there }: { readonly there: number; readonly back: number }): readonly Cut[] {
  return (
    [
      ['there', there],
      ['back', back],
    ] as const
  ).flatMap(([direction, bytes]) =>
    lives === undefined
      ? Array.from(someOf(bytes), (after) => ({ direction, after }))
      : Array.from({ length: bytes }, (_, after) => ({ direction, after })),
  )
}

function someOf(bytes: number): ReadonlySet<number> {
  return new Set(Array.from({ length: SOME }, () => Math.floor(random() * bytes)))
}

/** A client whose first connection to the controller is cut. */
async function cutClient(cut?: Cut) {
  const [endpoint = { host: '', port: 0 }] = test.endpoints
  const { authority } = test
  const link = await CuttingLink.to(endpoint, { authority, caller: 'a', called: 'controller' })
  link.cutNext(cut)
  const client = openController({ endpoints: [link.endpoint], credentials: credentialsOf(authority, 'a') })
  const close = async () => {
    client.close()
    await expect.poll(() => link.open).toBe(0)
    link.close()
  }
  return { client, close, link }
}

const LIMIT = { timeout: lives === undefined ? 120_000 : 3_600_000 }

it(
  `a connection that is cut at a byte of RunLease is opened again, and loses no word (seed ${seed})`,
  LIMIT,
  async () => {
    const followed = async (name: string, cut?: Cut) => {
      const [them, us] = [hypervisor('a', 1n, name), hypervisor('b', 1n, name)]
      const { generation: epoch } = await direct.service.ensureVm(storageLocking(them))
      const { client, close, link } = await cutClient(cut)
      const updates = opened(() => client.runLease(them, within))
      const seen = [(await updates.next()).value]
      await other.vms.migrationSwitchover({ us, them })
      // What it was told before the cut may come again.
      while (seen.at(-1)?.status === Status.STATUS_OK && seen.length < 5)
        seen.push((await updates.next()).value)
      const { carried } = link
      await updates.return()
      await close()
      expect(seen.at(0), name).toMatchObject({ status: Status.STATUS_OK, epoch })
      expect(seen.at(-1), name).toMatchObject({ status: Status.STATUS_TERMINATE, epoch: epoch + 1n })
      return { ...carried }
    }
    const whole = await followed('whole')
    for (const cut of cutsOf(whole)) await followed(`lease-${cut.direction}-${cut.after}`, cut)
  },
)

it(`a renewal that is cut at a byte has its own grant or none (seed ${seed})`, LIMIT, async () => {
  const renewed = async (name: string, cut?: Cut) => {
    const us = hypervisor('a', 1n, name)
    const { generation: epoch } = await direct.service.ensureVm(fullLeases(us, 30_000n))
    const { client, close, link } = await cutClient(cut)
    for (const nonce of [Buffer.from(`${name}/1`), Buffer.from(`${name}/2`)]) {
      const renew = () => client.service.renewLease({ us, nonce })
      const grant = await renew()
        .catch(isUngreeted)
        .then((answer) => answer ?? renew())
      expect({ ...grant, nonce: Buffer.from(grant.nonce) }, name).toEqual({
        ...{ status: Status.STATUS_OK, epoch, ttlMs: 30_000n, nonce },
      })
    }
    const { carried } = link
    await close()
    return { ...carried }
  }
  const whole = await renewed('whole-renewal')
  for (const cut of cutsOf(whole)) await renewed(`renewal-${cut.direction}-${cut.after}`, cut)
  // One record each, whatever was sent twice.
  const records = test.lines.filter(
    ({ message, fields }) => message === 'lease' && `${fields.vm}`.includes('whole-renewal'),
  )
  expect(records).toHaveLength(1)
})

/** A controller that hangs up before it has spoken may have refused the certificate. Both callers ask again (followRunLease, LeaseKeeper). */
function isUngreeted(error: unknown): undefined {
  expect(error).toMatchObject({ code: 'PERMISSION_DENIED' })
}

async function* opened(
  open: () => AsyncGenerator<RunLeaseUpdate, void>,
): AsyncGenerator<RunLeaseUpdate, void> {
  for (;;) {
    try {
      return yield* open()
    } catch (error) {
      isUngreeted(error)
    }
  }
}
