"""Readers of Nsight Systems exports."""
