import { AgentError } from '../../base/errors.ts'
import type { HypervisorID } from '../../gen/vm.ts'
import { HOST_ID } from '../tls/credentials.ts'

/** Of the VMs of the administrator. */
export const DEFAULT_NAMESPACE = 'default'

/** As the names of tenants. */
const NAMESPACE = /^[a-z0-9][a-z0-9_.-]{0,62}$/
const MOST_NAME_BYTES = 128
const POD_NAME = /^([^/]+)\/([^/\p{Cc}]{1,128})$/u
/** Nanoseconds until the year 2262. */
const MOST_RUN_ID = 2n ** 63n - 1n

export function isSameHypervisor(one: HypervisorID | undefined, other: HypervisorID | undefined): boolean {
  if (one === undefined || other === undefined) return false
  return isSamePod(one, other) && one.runId === other.runId
}

/** Whether both are runs of one hypervisor. */
export function isSamePod(one: HypervisorID, other: HypervisorID): boolean {
  return one.podName === other.podName && isSameVm(one, other)
}

export function isSameVm(one: HypervisorID, other: HypervisorID): boolean {
  return one.namespace === other.namespace && one.vmName === other.vmName
}

/** Id of the host that a checked hypervisor is on. */
export function hostOf({ podName }: HypervisorID): string {
  return podName.slice(0, podName.indexOf('/'))
}

/** As logs and errors name it. */
export function hypervisorText({ podName, runId }: HypervisorID): string {
  return `${podName} (run ${runId})`
}

/** Throws INVALID_ARGUMENT naming the field of `field` that is missing or wrong. */
export function checkedHypervisor(field: string, id: HypervisorID | undefined): HypervisorID {
  if (id === undefined) throw invalid(`${field}: missing, want the hypervisor`)
  checkVmName(`${field}.namespace`, `${field}.vm_name`, { namespace: id.namespace, name: id.vmName })
  const [, host = ''] = POD_NAME.exec(id.podName) ?? []
  if (!HOST_ID.test(host)) throw invalid(`${field}.pod_name: ${quoted(id.podName)}, want HOST/INSTANCE`)
  if (id.runId < 1n || id.runId > MOST_RUN_ID)
    throw invalid(`${field}.run_id: ${id.runId}, want 1 to ${MOST_RUN_ID}`)
  return id
}

export function checkVmName(
  namespaceField: string,
  nameField: string,
  { namespace, name }: { readonly namespace: string; readonly name: string },
): void {
  if (!NAMESPACE.test(namespace))
    throw invalid(
      `${namespaceField}: ${quoted(namespace)}, want 1 to 63 of a-z, 0-9, _ . -, such as ${DEFAULT_NAMESPACE}`,
    )
  const bytes = Buffer.byteLength(name)
  if (bytes === 0 || bytes > MOST_NAME_BYTES || /[/\p{Cc}]/u.test(name))
    throw invalid(`${nameField}: ${quoted(name)}, want the key of an instance`)
}

export function invalid(message: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', message)
}

/** Cut, so that an error stays short. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text)
}
