import { AgentError } from '../../../../src/base/errors.ts'
import { Vm } from '../../../../src/gen/microvm/controller/v1/controller.ts'
import { EtcdClient } from '../../../../src/host/controller/store/etcd-client.ts'
import { vmKey } from '../../../../src/host/controller/store/keys.ts'
import { parseEndpoint } from '../../../../src/host/tls/endpoint.ts'
import type { Link } from './fleet.ts'

/*
 * Prints who has run a VM since it was made, as etcd has kept it, the first first; none of one that was removed. It runs where the members are.
 * read-chain.ts NAME ENDPOINT…
 */

const [, , name = '', ...texts] = process.argv
const endpoints = texts.map((text) => {
  const endpoint = parseEndpoint(text)
  if (endpoint === undefined) throw new AgentError('INVALID_ARGUMENT', `endpoint ${text}`)
  return endpoint
})
const etcd = new EtcdClient({ endpoints })
const key = vmKey({ namespace: 'default', name })
const links: Link[] = []
// 0 is the present state.
for (let revision = 0n; ; ) {
  const { kvs } = await etcd.range({ key, revision })
  const [found] = kvs
  if (found === undefined) break
  const { authoritative, generation, removed } = Vm.decode(found.value)
  if (removed) break
  const link = {
    ...{ generation: Number(generation), pod: authoritative?.podName ?? '' },
    run: `${authoritative?.runId ?? 0n}`,
  }
  const [later] = links
  if (later === undefined || later.pod !== link.pod || later.run !== link.run) links.unshift(link)
  revision = found.modRevision - 1n
  if (revision === 0n || found.version === 1n) break
}
etcd.close()
process.stdout.write(JSON.stringify(links))
