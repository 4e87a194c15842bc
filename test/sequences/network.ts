import { expect } from 'vitest'
import { AddARPNeighborsRequest, UpdateInterfaceRequest, UpdateRoutesRequest } from '../../src/gen/agent.ts'
import { recordedRequest } from '../recordings/recorded-request.ts'
import { agent, type Step } from './sequence.ts'

const INTERFACE = recordedRequest(UpdateInterfaceRequest, 'go-shim.cri-pod-five-containers', 3)
const ROUTES = recordedRequest(UpdateRoutesRequest, 'go-shim.cri-pod-five-containers', 4)
const NEIGHBORS = recordedRequest(AddARPNeighborsRequest, 'go-shim.ctr-network', 6)

export const NIC = { mac: INTERFACE.interface?.hwAddr ?? '' } as const

/** The sandbox's recorded network: one interface, its default route, and two neighbours. */
export function networkSteps(): readonly Step[] {
  const { name, hwAddr } = INTERFACE.interface ?? {}
  const [route] = ROUTES.routes?.Routes ?? []
  const installed = expect.objectContaining({ gateway: route?.gateway, device: name })
  return [
    { call: agent('updateInterface', INTERFACE), answers: { name, hwAddr } },
    { call: agent('updateRoutes', ROUTES), answers: { Routes: expect.arrayContaining([installed]) } },
    { call: agent('addARPNeighbors', NEIGHBORS) },
  ]
}
